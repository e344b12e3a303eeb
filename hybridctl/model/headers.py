"""Reads what a safetensors file holds from its header alone: names, dtypes, shapes and places, never the numbers.

The format: eight bytes of header length (little endian), that many bytes of JSON, then the data. Source:
https://github.com/huggingface/safetensors. A header comes from strangers, so every claim in it is checked before it is used.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from hybridctl.errors import UsageError

LENGTH_BYTES = 8
MAX_HEADER = 100_000_000
"""The limit that the format's own library sets."""
BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8,
    "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "C64": 64, "F4": 4, "F6_E2M3": 6,
    "F6_E3M2": 6,
}  # fmt: skip
_MAX_DIMENSIONS = 16
_MAX_SIZE = 2**48
_MAX_TENSORS = 500_000


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a checkpoint."""

    name: str
    dtype: str
    """As the format spells it: BF16, F8_E4M3, U8."""
    shape: tuple[int, ...]
    bytes: int
    file: str = ""


class BadHeader(UsageError):
    """A file that is no sound safetensors file. One line: which, and why."""


def header_length(start: bytes, file: str, size: int | None = None) -> int:
    """The length of the header from a file's first eight bytes.

    Args:
        size: bytes of the whole file, where known.

    Raises:
        BadHeader: too short, too long, an LFS pointer, or longer than the file.
    """
    if start.startswith(b"version "):
        raise BadHeader(
            f"{file}: a Git LFS pointer, not the weights", "git lfs pull, or download the file from the hub"
        )
    if len(start) < LENGTH_BYTES:
        raise BadHeader(f"{file}: {len(start)} bytes are no safetensors file", "download the file again")
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    if not 2 <= length <= MAX_HEADER:
        raise BadHeader(
            f"{file}: a header of {length} bytes is not possible (limit {MAX_HEADER})", "download the file again"
        )
    if size is not None and LENGTH_BYTES + length > size:
        raise BadHeader(
            f"{file}: its header of {length} bytes is longer than the file ({size} bytes)", "download the file again"
        )
    return length


def parse_header(text: bytes, file: str, size: int | None = None) -> list[Tensor]:
    """The tensors of a header's JSON.

    Args:
        size: bytes of the whole file, where known; tensors must lie inside it.

    Raises:
        BadHeader: not JSON, or a tensor with an unknown dtype, an impossible shape, or a place that does not fit or overlaps.
    """
    table = _table(text, file)
    data = None if size is None else size - LENGTH_BYTES - len(text)
    tensors: list[Tensor] = []
    places: list[tuple[int, int, str]] = []
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        tensor, begin, end = _tensor(name, entry, file)
        if data is not None and end > data:
            raise BadHeader(
                f"{file}: {_shown(name)} ends at byte {end}, the file's data at {data}: it is cut off",
                "download it again",
            )
        tensors.append(tensor)
        places.append((begin, end, name))
    places.sort()
    for (_, end, one), (begin, _, other) in pairwise(places):
        if begin < end:
            raise BadHeader(f"{file}: {_shown(one)} and {_shown(other)} overlap", "download the file again")
    return tensors


def _table(text: bytes, file: str) -> Mapping[str, Any]:
    if (count := text.count(b'"data_offsets"')) > _MAX_TENSORS:
        raise BadHeader(
            f"{file}: {count} tensors in one file are more than any checkpoint has", "download the file again"
        )
    if text.count(b"{") > 8 + 4 * text.count(b"dtype") or text.count(b"[") > 8 + 4 * text.count(b"dtype"):
        raise BadHeader(f"{file}: its header is nested deeper than a list of tensors", "download the file again")
    try:
        table = json.loads(text, object_pairs_hook=_once)
    except _Twice as error:
        raise BadHeader(
            f"{file}: the tensor {_shown(str(error))} stands twice in its header", "download the file again"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadHeader(
            f"{file}: its header is not JSON ({type(error).__name__})", "download the file again"
        ) from error
    if not isinstance(table, dict):
        raise BadHeader(f"{file}: its header is no table of tensors", "download the file again")
    return table


class _Twice(ValueError):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise _Twice(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return table


def _tensor(name: str, entry: object, file: str) -> tuple[Tensor, int, int]:
    if not isinstance(entry, dict):
        raise BadHeader(f"{file}: {_shown(name)} has no entry of its own", "download the file again")
    dtype, shape, place = entry.get("dtype"), _whole(entry.get("shape")), _whole(entry.get("data_offsets"))
    if not isinstance(dtype, str) or dtype not in BITS:
        raise BadHeader(
            f"{file}: {_shown(name)} has the dtype {_shown(dtype)}, which no checkpoint has", "download the file again"
        )
    if shape is None or len(shape) > _MAX_DIMENSIONS or prod(shape) > _MAX_SIZE:
        raise BadHeader(f"{file}: {_shown(name)} has an impossible shape", "download the file again")
    if place is None or len(place) != 2 or place[0] > place[1]:
        raise BadHeader(f"{file}: {_shown(name)} has an impossible place", "download the file again")
    bits = prod(shape) * BITS[dtype]
    if place[1] - place[0] != -(-bits // 8):
        raise BadHeader(
            f"{file}: {_shown(name)} takes {place[1] - place[0]} bytes, its shape and dtype {-(-bits // 8)}",
            "download the file again",
        )
    return Tensor(name, dtype, tuple(shape), place[1] - place[0], file), place[0], place[1]


def _whole(value: object) -> list[int] | None:
    if not isinstance(value, list):
        return None
    fine = all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= _MAX_SIZE for v in value)
    return value if fine else None


def _shown(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 80 else text[:77] + "...")
