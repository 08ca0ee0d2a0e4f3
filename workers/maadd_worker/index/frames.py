"""How a pass and its parsing processes speak: MessagePack behind a length, over pipes."""

from __future__ import annotations

from typing import IO

import msgspec

from maadd_worker.index.prepare import FileTask, Limits, PreparedFile
from maadd_worker.schema.model import Model

_LENGTH_BYTES = 4


class Assignment(msgspec.Struct, frozen=True):
    """The first frame: the absolute path of the project, its model, and the caps."""

    root: str
    model: Model
    limits: Limits


encode = msgspec.msgpack.Encoder().encode
assignment_decoder = msgspec.msgpack.Decoder(Assignment)
tasks_decoder = msgspec.msgpack.Decoder(list[FileTask])
prepared_decoder = msgspec.msgpack.Decoder(list[PreparedFile])


def write_frame(stream: IO[bytes], payload: bytes) -> None:
    """Send one frame; BrokenPipeError when nobody reads."""
    stream.write(len(payload).to_bytes(_LENGTH_BYTES, "big"))
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None at the end of the stream, also when it ends within a frame."""
    head = stream.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    size = int.from_bytes(head, "big")
    payload = stream.read(size)
    return payload if len(payload) == size else None
