"""Some lines of a log of any size, by their numbers: what the log reader found is shown with its surroundings."""

from __future__ import annotations

from typing import BinaryIO

from hybridctl.doctor.facts.clean import strip_controls

CHUNK = 1 << 20
MAX_LINE = 1000
"""Characters of a line that are shown."""
_TAIL = 1 << 16


def window(stream: BinaryIO, first: int, last: int, end: int) -> list[tuple[int, str]]:
    """Lines ``first`` to ``last`` (1-based, as :func:`hybridctl.doctor.logs.read_log` counts them) and the last ``end`` lines.

    Each with its number, in order, none twice, without control codes; of a line that a progress bar overwrote, its last state. The
    memory taken does not grow with the log.
    """
    kept: dict[int, str] = {}
    number, tail, rest = 1, b"", b""
    while block := stream.read(CHUNK):
        tail = (tail + block)[-_TAIL:]
        breaks = block.count(b"\n")
        if number + breaks >= first and number <= last:
            lines = (rest + block).split(b"\n")
            kept |= {number + i: _shown(line) for i, line in enumerate(lines) if first <= number + i <= last}
            rest = lines[-1][-2 * _TAIL :]
        else:
            rest = block[block.rfind(b"\n") + 1 :][-2 * _TAIL :] if breaks else (rest + block)[-2 * _TAIL :]
        number += breaks
    final = tail.split(b"\n")
    if len(tail) == _TAIL and len(final) > 1:
        final = final[1:]  # its beginning is cut off
    if final and not final[-1]:
        final, number = final[:-1], number - 1
    begin = number - len(final) + 1
    kept |= {begin + i: _shown(line) for i, line in enumerate(final) if begin + i > number - end}
    return sorted((at, text) for at, text in kept.items() if at <= number)


def _shown(line: bytes) -> str:
    text = line.rstrip(b"\r").rpartition(b"\r")[2][: 4 * MAX_LINE].decode("utf-8", "replace")
    text = strip_controls(text).rstrip()
    return text if len(text) <= MAX_LINE else text[: MAX_LINE - 1] + "…"
