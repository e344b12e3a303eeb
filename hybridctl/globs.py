"""File-name patterns against text, without compiling one regular expression for each of the hundreds that a run looks at."""

from __future__ import annotations

from fnmatch import fnmatchcase


def glob(text: str, pattern: str) -> bool:
    """As :func:`fnmatch.fnmatchcase`. Plain words and words between stars, which nearly all patterns are, take the short way."""
    core = pattern.strip("*")
    if any(c in core for c in "*?["):
        return fnmatchcase(text, pattern)
    starts, ends = not pattern.startswith("*"), not pattern.endswith("*")
    if starts and ends:
        return text == core
    if starts:
        return text.startswith(core)
    return text.endswith(core) if ends else core in text
