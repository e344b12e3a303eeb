"""Read what a user points at: files, standard input, in whatever encoding a shell wrote them."""

from __future__ import annotations

import codecs
import io
import sys
from pathlib import Path
from typing import Any, BinaryIO

from hybridctl.errors import UsageError

MAX_TEXT = 16 * 1024 * 1024
_HEAD = 1 << 16
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def open_binary(where: str, option: str) -> BinaryIO:
    """Open a file, a pipe, or standard input for ``-``. UTF-16 (PowerShell's ``>`` writes it) is handed on as UTF-8.

    Raises:
        UsageError: it is missing, a folder, not readable, empty, or not text.
    """
    raw = _open(where, option)
    try:
        head = _head(raw)
    except OSError as error:
        raise UsageError(f"{option}: can't read {_named(where)}: {error.strerror or error}") from error
    if not head.strip():
        raise UsageError(
            f"{option}: {'standard input' if where == '-' else _named(where)} is empty", "give the text of the report"
        )
    encoding = next((encoding for bom, encoding in _BOMS if head.startswith(bom)), "")
    if not encoding and head.startswith(b"\x1f\x8b"):
        raise UsageError(f"{option}: {_named(where)} is compressed", f"zcat FILE | hybridctl doctor {option} -")
    if not encoding and _is_binary(head):
        raise UsageError(
            f"{option}: {_named(where)} is not text", "give the text of the report, not an archive or a core dump"
        )
    return io.BufferedReader(_Text(head, raw, encoding), 1 << 16)


def _open(where: str, option: str) -> BinaryIO:
    if where == "-":
        if sys.stdin is None:
            raise UsageError(f"{option}: standard input is closed", "give a file")
        return sys.stdin.buffer
    path = Path(where)
    try:
        if path.is_dir():
            raise UsageError(
                f"{option}: {_named(where)} is a folder, not a file", "name a file in it, or '-' for standard input"
            )
        return path.open("rb")
    except FileNotFoundError as error:
        raise UsageError(f"{option}: there is no file {_named(where)}", "check the path") from error
    except PermissionError as error:
        raise UsageError(f"{option}: no permission to read {_named(where)}", f"ls -l {_named(where)}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{option}: can't read {_named(where)}: {why}") from error


def _named(where: str) -> str:
    return where if len(where) <= 300 else where[:297] + "..."


def _head(raw: BinaryIO) -> bytes:
    """The first bytes, enough of them to judge by: a pipe may give an empty line now and the rest later."""
    head = b""
    while len(head) < _HEAD and not head.strip():
        piece = raw.read1(_HEAD - len(head)) if isinstance(raw, io.BufferedReader) else raw.read(_HEAD - len(head))
        if not piece:
            break
        head += piece
    return head


class _Text(io.RawIOBase):
    """What was read of a stream already, then the rest of it; a known encoding becomes UTF-8 piece by piece."""

    def __init__(self, head: bytes, raw: BinaryIO, encoding: str) -> None:
        super().__init__()
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace") if encoding else None
        self._pending = self._plain(head)

    def _plain(self, data: bytes) -> bytes:
        return self._decoder.decode(data, not data).encode("utf-8", "replace") if self._decoder else data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._pending and self._decoder is None and isinstance(self._raw, io.BufferedIOBase):
            return self._raw.readinto(buffer)
        while not self._pending:
            data = self._raw.read(_HEAD)
            self._pending = self._plain(data)
            if not data:
                break
        count = min(len(buffer), len(self._pending))
        buffer[:count], self._pending = self._pending[:count], self._pending[count:]
        return count

    def close(self) -> None:
        if not self.closed and self._raw is not getattr(sys.stdin, "buffer", None):
            self._raw.close()
        super().close()


def read_text(where: str, option: str) -> str:
    """The whole text of a small input.

    Raises:
        UsageError: as :func:`open_binary`, or it is larger than 16 MiB.
    """
    with open_binary(where, option) as stream:
        data = stream.read(MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise UsageError(
            f"{option}: {_named(where)} is larger than {MAX_TEXT >> 20} MiB",
            "a log goes to doctor --log, which takes any size",
        )
    return data.decode("utf-8-sig", "replace")


def _is_binary(head: bytes) -> bool:
    """Logs hold a few stray control codes; archives, images and core dumps are full of them."""
    odd = sum(
        head.count(bytes([code]))
        for code in (*range(7), 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28, 29, 30, 31)
    )
    return head[:4] in (b"\x7fELF", b"PK\x03\x04", b"GGUF") or odd > len(head) // 20
