"""maadd: Markdown as a database, served to AI agents over MCP."""

__version__ = "0.1.0"
