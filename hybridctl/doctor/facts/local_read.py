"""What the collectors of this machine share: the head of a small file, and a fact that was read here."""

from __future__ import annotations

from pathlib import Path

from hybridctl.doctor.facts.model import Fact, Origin, Value


def head(path: Path) -> str:
    """The first 64 KiB of a text file; empty when it can't be read, which the caller must not take for a fact."""
    try:
        with path.open(encoding="utf-8", errors="replace") as handle:
            return handle.read(65536)
    except OSError:
        return ""


def local_fact(key: str, value: Value, quote: str) -> Fact:
    """A fact with origin ``local``."""
    return Fact(key, value, Origin("local", None, quote))
