"""The worker process: one engine, one project, one SQLite index."""
