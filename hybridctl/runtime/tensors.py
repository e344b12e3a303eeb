"""Copies of safetensors files without some of what they hold."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hybridctl.model.headers import LENGTH_BYTES, header_length, parse_header

_CHUNK = 4 << 20
_METADATA = "__metadata__"


def copy_without(source: Path, target: Path, leave_out: Collection[str]) -> None:
    """Copy a file without some of its tensors, piece by piece.

    Raises:
        UsageError: it is no sound safetensors file.
        OSError: the file can't be read, or the copy can't be written.
    """
    size = source.stat().st_size
    with source.open("rb") as stream:
        text = stream.read(header_length(stream.read(LENGTH_BYTES), source.name, size))
    parse_header(text, source.name, size)
    rows: dict[str, Any] = json.loads(text)
    kept = [name for name in rows if name != _METADATA and name not in leave_out]
    kept.sort(key=lambda name: rows[name]["data_offsets"][0])
    written: dict[str, Any] = {_METADATA: rows[_METADATA]} if _METADATA in rows else {}
    end = 0
    for name in kept:
        start, stop = rows[name]["data_offsets"]
        written[name] = {**rows[name], "data_offsets": [end, end + stop - start]}
        end += stop - start
    head = json.dumps(written, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # data begin at a multiple of eight
    with source.open("rb") as read, target.open("wb") as write:
        write.write(len(head).to_bytes(LENGTH_BYTES, "little") + head)
        for name in kept:
            start, stop = rows[name]["data_offsets"]
            read.seek(LENGTH_BYTES + len(text) + start)
            for left in range(stop - start, 0, -_CHUNK):
                write.write(read.read(min(left, _CHUNK)))
