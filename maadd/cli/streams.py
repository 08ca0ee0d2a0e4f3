"""Standard output and error of a command: what cannot be printed ends it, what cannot be told
does not.

A result that does not reach its reader is a failure, whatever else was done. Messages on standard
error are an aid: where they cannot be written, they are lost.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputLost(Exception):
    """Standard output takes nothing more; deliberately no OSError, which others would handle."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.strerror)
        self.reason = cause.strerror or str(cause)
        self.nobody_reads = isinstance(cause, BrokenPipeError)


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputLost(error) from None


class _Messages(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_standard_streams() -> None:
    """Prepare the standard streams of this process.

    One that is closed leads nowhere: the next file that is opened must not take its place, and
    what is printed is lost. Writing to the others raises OutputLost, or loses the message.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 -- stays open
    # A program that calls `main` keeps the streams that it has put there.
    if sys.stdout is sys.__stdout__:
        # Names of files may be no Unicode; in JSON what is written then is its escape.
        output = _Output(1, "wb", closefd=False)
        sys.stdout = _text(output, sys.stdout, by_line=output.isatty())
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Messages(2, "wb", closefd=False), sys.stderr, by_line=True)


def drop_output() -> None:
    """Whatever is still to be printed, at the end of the process too, goes nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _text(file: io.FileIO, before: io.TextIOBase | None, *, by_line: bool) -> io.TextIOWrapper:
    """A text stream over the file, in the encoding of the one before."""
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=None if before is None else before.encoding,
        errors="backslashreplace",
        line_buffering=by_line,
    )
