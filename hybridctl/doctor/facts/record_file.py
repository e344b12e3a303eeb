"""The RECORD of an installed distribution: which files it brought, with the size and the hash of each.

Format: https://packaging.python.org/en/latest/specifications/recording-installed-packages/ (CSV of path, algorithm=hash, size).
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass, field
from typing import NamedTuple

_ALGORITHMS = ("sha256", "sha384", "sha512")
"""What that page takes: sha256 or better."""
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Row(NamedTuple):
    """What is recorded of one file, as it stands there: thousands of rows are read, and few need more than a comparison."""

    hash: str
    size: str

    def stated_size(self) -> int | None:
        """Bytes; ``None`` when the row names none."""
        return int(self.size) if self.size.isascii() and self.size.isdigit() and len(self.size) <= 15 else None

    def holds(self, data: bytes) -> bool | None:
        """Whether this is the file's content; ``None`` when the row has no hash that tells."""
        algorithm, _, digest = self.hash.partition("=")
        if algorithm not in _ALGORITHMS or not digest:
            return None
        import hashlib

        actual = binascii.b2a_base64(hashlib.new(algorithm, data).digest(), newline=False)
        return actual.translate(_URL_SAFE).rstrip(b"=") == digest.rstrip("=").encode("ascii", "replace")


@dataclass(slots=True)
class Record:
    """The files of one package, by their path with slashes, and how many of its lines can't be read."""

    rows: dict[str, Row] = field(default_factory=dict)
    unread: int = 0


def parse_record(text: str, package: str) -> Record:
    """The rows below the folder ``package``; compiled files, which the installer made itself, are left out.

    Any text is taken. A path that leads out of the folder is no file of the package and counts as unread.
    """
    record = Record()
    begins = (f"{package}/", f'"{package}/')
    for line in text.split("\n"):
        if not line.startswith(begins) or "/__pycache__/" in line:
            continue
        fields = line.split(",") if '"' not in line else _quoted(line)
        if len(fields) != 3 or _leads_out(fields[0]):
            record.unread += 1
        else:
            record.rows[fields[0]] = Row(fields[1], fields[2].rstrip("\r"))
    return record


def _leads_out(path: str) -> bool:
    return (".." in path and ".." in path.split("/")) or "\0" in path


def _quoted(line: str) -> list[str]:
    if line.count('"') == 2:  # a name with a comma: the one thing that needs quotes in practice
        path, _, rest = line[1:].partition('"')
        return [path, *rest.split(",")[1:]]
    import csv

    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []
