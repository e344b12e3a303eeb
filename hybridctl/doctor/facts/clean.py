"""Pasted text to plain lines: no colour codes, no quote marks, no fences, no line longer than a pattern can bear."""

from __future__ import annotations

from dataclasses import dataclass

from hybridctl.patterns import late

MAX_LINE = 4096
"""Characters of a line that are looked at."""
MAX_LINES = 50_000
"""Lines of a text that are looked at: a report about a machine is never longer."""
MAX_TEXT = 2_000_000
"""Characters of a text that are looked at, long lines counted as they are cut."""

_ESCAPES = late(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: links, titles
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROL = late(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufff9-\ufffb]")
_QUOTE_MARKS = late(r"\s*(?:>(?!=)[ \t]?)+")
_FENCE = late(r"\s*(?:```|~~~)[\w+-]*\s*$")


@dataclass(frozen=True, slots=True)
class Line:
    """One line as a reader sees it."""

    number: int
    """1-based, counted in the input."""
    text: str


def strip_controls(text: str) -> str:
    """A line without escape sequences, control codes and invisible characters; tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROL.sub("", _ESCAPES.sub("", text))


def clean_lines(text: str) -> list[Line]:
    """The lines of a paste that have anything on them, with their numbers in the input.

    A line that was overwritten with carriage returns counts as several lines of one number. Quote marks (``>``) at the
    start and fences go; everything that stays stands so in the input.
    """
    lines: list[Line] = []
    size = 0
    end = -1
    for number in range(1, MAX_LINES + 1):
        start, end = end + 1, text.find("\n", end + 1)
        raw = text[start : start + MAX_LINE if end < 0 else min(end, start + MAX_LINE)]
        size += len(raw)
        if size > MAX_TEXT:
            break
        for part in raw.split("\r"):
            plain = strip_controls(part).rstrip()
            if plain and not _FENCE.match(plain):
                marks = _QUOTE_MARKS.match(plain)
                lines.append(Line(number, plain[marks.end() :] if marks else plain))
        if end < 0:
            break
    return lines
