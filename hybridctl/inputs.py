"""Read what a user points at: files, standard input, in whatever encoding a shell wrote them."""

from __future__ import annotations

import codecs
import io
import sys
from pathlib import Path
from typing import BinaryIO

from hybridctl.errors import UsageError

MAX_TEXT = 32 * 1024 * 1024
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def open_binary(where: str, option: str) -> BinaryIO:
    """Open a file, or standard input for ``-``. A UTF-16 file (PowerShell's ``>`` writes one) is handed on as UTF-8.

    Raises:
        UsageError: it is missing, a folder, not readable, empty, or not text.
    """
    stream: BinaryIO
    if where == "-":
        stream = sys.stdin.buffer
        peek = stream.peek(65536) if hasattr(stream, "peek") else b""
    else:
        path = Path(where)
        try:
            if path.is_dir():
                raise UsageError(
                    f"{option}: {where} is a folder, not a file", "name a file in it, or '-' for standard input"
                )
            stream = path.open("rb")
            peek = stream.read(65536)
            stream.seek(0)
        except FileNotFoundError as error:
            raise UsageError(f"{option}: there is no file {where}", "check the path") from error
        except PermissionError as error:
            raise UsageError(f"{option}: no permission to read {where}", f"ls -l {where}") from error
        except (OSError, ValueError) as error:
            raise UsageError(f"{option}: can't read {where}: {getattr(error, 'strerror', None) or error}") from error
    if not peek.strip():
        raise UsageError(
            f"{option}: {'standard input' if where == '-' else where} is empty", "give the text of the report"
        )
    for bom, encoding in _BOMS:
        if peek.startswith(bom):
            if encoding == "utf-8-sig":
                break
            return io.BytesIO(stream.read(MAX_TEXT).decode(encoding, "replace").encode("utf-8", "replace"))
    else:
        if _is_binary(peek):
            raise UsageError(
                f"{option}: {where} is not text", "give the text of the report, not an archive or a core dump"
            )
    return stream


def read_text(where: str, option: str) -> str:
    """The whole text of a small input.

    Raises:
        UsageError: as :func:`open_binary`, or it is larger than 32 MiB.
    """
    with open_binary(where, option) as stream:
        data = stream.read(MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise UsageError(
            f"{option}: {where} is larger than {MAX_TEXT >> 20} MiB", "a log goes to --log, which takes any size"
        )
    return data.decode("utf-8-sig", "replace")


def _is_binary(head: bytes) -> bool:
    """Logs hold a few stray control codes; archives, images and core dumps are full of them."""
    odd = sum(
        head.count(bytes([code]))
        for code in (*range(7), 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28, 29, 30, 31)
    )
    return head[:4] in (b"\x7fELF", b"PK\x03\x04", b"\x1f\x8b\x08\x00", b"GGUF") or odd > len(head) // 20
