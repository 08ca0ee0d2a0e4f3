"""Whether Git would store a file otherwise than byte for byte (line ends, LFS, encodings).

Almost no project asks for that, so the question must cost next to nothing: as long as no
attribute file exists on the way to a path and `core.autocrlf` is off, the answer is no.
"""

from __future__ import annotations

import os

import pygit2

from maadd_worker.history.git_dir import GitDir, config_files

_Stamp = tuple[int, int] | None
_ON = ("true", "input", "yes", "on", "1")
_TEXT = ("text", "crlf", "eol")
_PROGRAM = ("filter", "ident", "working-tree-encoding")


class ContentFilters:
    """The conversions that configuration and attributes ask for in one repository."""

    __slots__ = (
        "_attributes_file",
        "_autocrlf",
        "_config_files",
        "_directories",
        "_git_dir",
        "_repository",
        "_stamps",
    )

    def __init__(self, repository: pygit2.Repository, git_dir: GitDir) -> None:
        self._repository = repository
        self._git_dir = git_dir
        home = os.path.expanduser("~")
        xdg = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        self._attributes_file = os.path.join(xdg, "git", "attributes")
        self._config_files = (
            *config_files(git_dir),
            os.path.join(home, ".gitconfig"),
            os.path.join(xdg, "git", "config"),
            "/etc/gitconfig",
        )
        self._directories: dict[str, bool] = {}
        self._stamps: tuple[_Stamp, ...] = ()
        self._autocrlf = False

    def refresh(self) -> bool:
        """Read the configuration again if one of its files changed; whether one had. What was
        found out about attribute files counts until the next call."""
        self._directories.clear()
        stamps = tuple(_stamp(path) for path in self._config_files)
        if stamps == self._stamps:
            return False
        self._autocrlf = self._setting("core.autocrlf").lower() in _ON
        attributes_file = self._setting("core.attributesfile")
        if attributes_file:
            self._attributes_file = os.path.expanduser(attributes_file)
        self._stamps = stamps
        return True

    def _setting(self, name: str) -> str:
        """A value of the merged configuration: empty when not set, `true` when only named."""
        try:
            value = self._repository.config[name]
        except KeyError:
            return ""
        return "true" if value is None else value

    def changes(self, path: str, data: bytes) -> bool:
        """True when the `git` program has to make the blob of `path` out of `data`."""
        if not self._has_attributes(path):
            return self._autocrlf and b"\r" in data
        attribute = self._repository.get_attr
        if any(attribute(path, name) not in (None, False) for name in _PROGRAM):
            return True
        if b"\r" not in data or attribute(path, "text") is False:
            return False
        return self._autocrlf or any(attribute(path, name) not in (None, False) for name in _TEXT)

    def _has_attributes(self, path: str) -> bool:
        """Whether an attribute file may say something about a path."""
        directory = path.rpartition("/")[0]
        found = self._directories.get(directory)
        if found is None:
            found = self._directories[directory] = self._look_for_attributes(directory)
        return found

    def _look_for_attributes(self, directory: str) -> bool:
        common = os.path.join(self._git_dir.common, "info", "attributes")
        if any(map(os.path.exists, (common, self._attributes_file, "/etc/gitattributes"))):
            return True
        here = self._git_dir.root
        for name in (*directory.split("/"), ""):
            if os.path.exists(os.path.join(here, ".gitattributes")):
                return True
            here = os.path.join(here, name)
        return False


def _stamp(path: str) -> _Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
