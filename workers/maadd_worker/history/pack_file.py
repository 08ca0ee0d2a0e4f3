"""Encodes many new Git objects as one pack and its index (gitformat-pack, version 2, SHA-1)."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Mapping

import msgspec

_KINDS = {b"commit": 1, b"tree": 2, b"blob": 3}
_INDEX_HEAD = b"\xfftOc" + struct.pack(">I", 2)


class Pack(msgspec.Struct, frozen=True):
    """The bytes of a pack and of its index; `name` is the checksum they are filed under."""

    name: str
    pack: bytes
    index: bytes


def encode_pack(objects: Mapping[bytes, tuple[bytes, bytes]], *, level: int) -> Pack:
    """`objects` are kind and content by binary name; `level` is that of zlib.

    No object is stored as a difference to another. Together they stay below 2 GiB.
    """
    pieces = [b"PACK" + struct.pack(">II", 2, len(objects))]
    offset = len(pieces[0])
    entries: list[tuple[bytes, int, int]] = []
    for name, (kind, data) in objects.items():
        piece = _entry_head(_KINDS[kind], len(data)) + zlib.compress(data, level)
        entries.append((name, zlib.crc32(piece), offset))
        pieces.append(piece)
        offset += len(piece)
    body = b"".join(pieces)
    checksum = hashlib.sha1(body).digest()
    return Pack(checksum.hex(), body + checksum, _index(sorted(entries), checksum))


def _entry_head(kind: int, size: int) -> bytes:
    """Kind and size: four bits of the size in the first byte, seven in each that follows."""
    head = bytearray()
    byte, size = kind << 4 | size & 0xF, size >> 4
    while size:
        head.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    head.append(byte)
    return bytes(head)


def _index(entries: list[tuple[bytes, int, int]], checksum: bytes) -> bytes:
    names = [name for name, _, _ in entries]
    fanout = [0] * 256
    for name in names:
        fanout[name[0]] += 1
    total = 0
    for first, count in enumerate(fanout):
        total += count
        fanout[first] = total
    body = b"".join(
        (
            _INDEX_HEAD,
            struct.pack(">256I", *fanout),
            *names,
            _words(crc for _, crc, _ in entries),
            _words(offset for _, _, offset in entries),
            checksum,
        )
    )
    return body + hashlib.sha1(body).digest()


def _words(values: Iterable[int]) -> bytes:
    numbers = list(values)
    return struct.pack(f">{len(numbers)}I", *numbers)
