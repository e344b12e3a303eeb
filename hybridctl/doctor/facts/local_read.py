"""What the collectors of this machine share: the head of a small file, and a fact that was read here."""

from __future__ import annotations

import stat
from pathlib import Path

from hybridctl.doctor.facts.model import Fact, Origin, Value


def head(path: Path, size: int = 65536) -> str:
    """The first ``size`` characters of a text file; empty when it can't be read, which the caller must not take for a fact."""
    try:
        with path.open(encoding="utf-8", errors="replace") as handle:
            return handle.read(size)
    except (OSError, ValueError):
        return ""


def local_fact(key: str, value: Value, quote: str) -> Fact:
    """A fact with origin ``local``."""
    return Fact(key, value, Origin("local", None, quote))


def regular_bytes(path: Path, limit: int) -> bytes | str:
    """The content of a regular file of at most ``limit`` bytes, or in a few words why there is none: a pipe would hang the run."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "no regular file"
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        return "missing"
    except (OSError, ValueError) as error:
        return f"not readable ({getattr(error, 'strerror', None) or error})"
    return data if len(data) <= limit else f"larger than {limit} bytes"


def printable(text: str) -> str:
    """A file's name as text: its bytes may be no text, or move a cursor, and those are shown as question marks."""
    return "".join(c if c.isprintable() else "?" for c in text.encode("utf-8", "replace").decode("utf-8"))
