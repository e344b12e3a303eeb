"""Collects facts of one text, each with the verbatim piece that says it."""

from __future__ import annotations

import re
from bisect import bisect_right

from hybridctl.doctor.facts.model import Facts, Origin, Value
from hybridctl.patterns import late

_SECRET_NAME = late(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|(?:^|_)PASS$|API_?KEY|ACCESS_KEY|CREDENTIAL", re.IGNORECASE
)
_VARIABLE = late(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class Draft:
    """Facts about ``text``, from ``source``. Of a key stated twice the first statement stays."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source
        self.facts = Facts()
        self._line_starts = [0]
        position = text.find("\n")
        while position >= 0:
            self._line_starts.append(position + 1)
            position = text.find("\n", position + 1)

    def branch(self) -> Draft:
        """An empty draft of the same text, for what may turn out to be nothing."""
        twin = Draft("", self.source)
        twin.text, twin._line_starts = self.text, self._line_starts
        return twin

    def say(self, key: str, value: Value, start: int, end: int, quote: str | None = None) -> None:
        """State a fact; its quote is ``text[start:end]`` unless another verbatim piece is given."""
        if self.facts.get(key) is None:
            line = bisect_right(self._line_starts, start)
            piece = self.text[start:end] if quote is None else quote
            self.facts.add(key, value, Origin(self.source, line, piece.strip()))

    def say_env(self, name: str, value: str, start: int, end: int) -> None:
        """A variable; the value of a secret is neither kept nor quoted."""
        if not _VARIABLE.fullmatch(name):
            return
        if _SECRET_NAME.search(name) and value:
            self.say(f"env.{name}", masked(value), start, end, name)
        else:
            self.say(f"env.{name}", value, start, end)

    def value(self, key: str) -> Value | None:
        return self.facts.value(key)


def masked(secret: str) -> str:
    """What is shown of a secret: nothing."""
    return "***" if secret else ""
