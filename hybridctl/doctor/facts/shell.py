"""Splits text that holds shell commands into words, each with its place in the text.

What people paste is rarely a clean POSIX line: PowerShell and cmd continuations, Markdown back-ticks, typographic quotes and
dashes, a prompt, Windows paths, JSON that lost its quotes, a flag on each line without a backslash. All of that is read; nothing
raises. The place of a word is needed because evidence is quoted verbatim.
"""

from __future__ import annotations

from dataclasses import dataclass

from hybridctl.patterns import late

MAX_TEXT = 200_000
"""Characters that are looked at; a launch line is never longer."""

_CONTINUED = late(r"[ \t\r]*\n")
_FLAG_LINE = late(r"\s*-{1,2}[A-Za-z]")
_PLACEHOLDER = late(r"<[A-Za-z_][^<>\n]{0,80}>")
_REDIRECT = late(r">{1,2}\|?(?:&(?:\d|-))?")
_CLOSING = {"'": "'", '"': '"', "“": '”“"', "”": '”"', "‘": "’'", "’": "’"}
_JSON_SPAN = 4096
_MAX_VAIN = 50
"""Quotes and brackets without an end cost a search each; after so many they are taken as plain characters."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word after quotes are removed, and where it stands in the text (``text[start:end]`` is its source)."""

    value: str
    start: int
    end: int


def split_commands(text: str, start: int = 0, end: int | None = None, *, newline_ends: bool = True) -> list[list[Word]]:
    """The simple commands of ``text[start:end]``, each a list of words.

    Args:
        text: any text.
        start: where to begin.
        end: where to stop; the end of the text by default.
        newline_ends: whether a new line begins a new command (a YAML ``command:`` is one command over several lines).
    """
    stop = min(len(text) if end is None else end, start + MAX_TEXT)
    return _Splitter(text, start, stop, newline_ends).run()


def words_inside(word: Word, text: str, *, newline_ends: bool = True) -> list[list[Word]]:
    """The commands inside one word, as in ``sh -c "…"``. Where escapes hide the place, each part has that of the whole word."""
    offset = text.find(word.value, word.start, word.end) if word.value else -1
    if offset >= 0:
        return split_commands(text, offset, offset + len(word.value), newline_ends=newline_ends)
    inner = split_commands(word.value, newline_ends=newline_ends)
    return [[Word(w.value, word.start, word.end) for w in command] for command in inner]


class _Splitter:
    def __init__(self, text: str, start: int, stop: int, newline_ends: bool) -> None:
        self.text, self.i, self.stop, self.newline_ends = text, start, stop, newline_ends
        self.commands: list[list[Word]] = []
        self.words: list[Word] = []
        self.buffer: list[str] = []
        self.begin: int | None = None
        self.drop_next = False
        self.vain = 0

    def run(self) -> list[list[Word]]:
        while self.i < self.stop:
            self._step(self.text[self.i])
        self._end_command()
        return self.commands

    def _step(self, c: str) -> None:
        handler = _HANDLERS.get(c)
        if handler is not None:
            handler(self)
        elif c.isspace():
            self._end_word()
            self.i += 1
        else:
            self._put(c, 1)

    def _put(self, value: str, consumed: int) -> None:
        if self.begin is None:
            self.begin = self.i
        self.buffer.append(value)
        self.i += consumed

    def _end_word(self) -> None:
        if self.begin is not None:
            if not self.drop_next:
                self.words.append(Word("".join(self.buffer), self.begin, self.i))
            self.drop_next = False
        self.buffer, self.begin = [], None

    def _end_command(self) -> None:
        self._end_word()
        self.drop_next = False
        if self.words:
            self.commands.append(self.words)
        self.words = []

    def _peek(self, offset: int = 1) -> str:
        return self.text[self.i + offset] if self.i + offset < self.stop else ""

    def _continues(self) -> int | None:
        """Where the next line begins when only blanks stand between here and the end of the line."""
        m = _CONTINUED.match(self.text, self.i + 1, self.stop)
        return m.end() if m else None

    def newline(self) -> None:
        if not self.newline_ends or (
            self.words and _FLAG_LINE.match(self.text, self.i + 1, min(self.stop, self.i + 200))
        ):
            self._end_word()
        else:
            self._end_command()
        self.i += 1

    def backslash(self) -> None:
        if (after := self._continues()) is not None:
            self._end_word()
            self.i = after
            return
        following = self._peek()
        if following.isalnum() or following in ("", "_", ".", "%"):  # a Windows path; nobody escapes a letter
            self._put("\\", 1)
        else:
            self._put(following, 2)

    def backtick(self) -> None:
        if (after := self._continues()) is not None and not self.text.startswith("```", max(self.i - 2, 0)):
            self._end_word()
            self.i = after
            return
        self._end_command()
        self.i += 1

    def caret(self) -> None:
        if (after := self._continues()) is not None:
            self._end_word()
            self.i = after
        else:
            self._put("^", 1)

    def quote(self) -> None:
        c = self.text[self.i]
        single = c in "'‘’"
        before = self.text[self.i - 1] if self.i else ""
        apostrophe = single and before.isalnum() and self._peek().isalpha() and self.begin is not None
        if apostrophe or self.vain > _MAX_VAIN:
            self._put(c, 1)
            return
        closing = _CLOSING[c]
        value, after = self._quoted(self.i + 1, closing, single)
        self._put(value, after - self.i)

    def _quoted(self, i: int, closing: str, single: bool) -> tuple[str, int]:
        """The content up to the closing quote, and where to go on. A quote that is never closed ends with its line."""
        begin = i
        out: list[str] = []
        while i < self.stop:
            c = self.text[i]
            if c in closing:
                return "".join(out), i + 1
            if not single and c in "\\`" and i + 1 < self.stop and self.text[i + 1] in '"\\$`\n':
                if self.text[i + 1] != "\n":
                    out.append(self.text[i + 1])
                i += 2
                continue
            out.append(c)
            i += 1
        self.vain += 1
        line_end = self.text.find("\n", begin, self.stop)
        line_end = self.stop if line_end < 0 else line_end
        return self.text[begin:line_end], line_end

    def separator(self) -> None:
        if self.text[self.i] == "&" and self._peek() == ">":
            self._end_word()
            self.i += 1
            return
        self._end_command()
        self.i += 1

    def opening(self) -> None:
        if self.begin is None:
            self._end_command()
            self.i += 1
        else:
            self._put("(", 1)

    def closing(self) -> None:
        if any("(" in part for part in self.buffer):
            self._put(")", 1)
        else:
            self._end_command()
            self.i += 1

    def dollar(self) -> None:
        if self._peek() == "(" and self.vain <= _MAX_VAIN:
            depth, i = 0, self.i + 1
            while i < min(self.stop, self.i + _JSON_SPAN):
                depth += {"(": 1, ")": -1}.get(self.text[i], 0)
                i += 1
                if depth == 0:
                    self._put(self.text[self.i : i], i - self.i)
                    return
            self.vain += 1
        self._put("$", 1)

    def brace(self) -> None:
        """JSON that nobody quoted is one word, with its inner quotes."""
        if self.vain <= _MAX_VAIN and (self.begin is None or (self.buffer and self.buffer[-1].endswith("="))):
            end = _matching_brace(self.text, self.i, min(self.stop, self.i + _JSON_SPAN))
            if end and ":" in self.text[self.i : end]:
                self._put(self.text[self.i : end], end - self.i)
                return
            self.vain += 1
        self._put("{", 1)

    def less(self) -> None:
        m = _PLACEHOLDER.match(self.text, self.i, self.stop)
        if m:
            self._put(m[0], len(m[0]))
        elif self._peek() == "<":
            self._end_command()
            self.i += 2
        else:
            self._end_word()
            self.drop_next = True
            self.i += 1

    def greater(self) -> None:
        if self.begin is None and not self.words:  # a prompt
            self.i += 1
            return
        if self._peek() == "=" and self.begin is not None:  # pip install vllm>=0.20
            self._put(">", 1)
            return
        if all(part.isdigit() for part in self.buffer):
            self.buffer, self.begin = [], None
        self._end_word()
        m = _REDIRECT.match(self.text, self.i, self.stop)
        operator = m[0] if m else ">"
        self.drop_next = "&" not in operator
        self.i += len(operator)

    def hash(self) -> None:
        if self.begin is not None:
            self._put("#", 1)
            return
        line_end = self.text.find("\n", self.i, self.stop)
        self.i = self.stop if line_end < 0 else line_end

    def dash(self) -> None:
        """Editors turn ``--`` into one long dash."""
        if self.begin is None and self._peek().isalpha():
            self._put("--", 1)
        else:
            self._put(self.text[self.i], 1)


def _matching_brace(text: str, start: int, stop: int) -> int | None:
    depth, quoted = 0, False
    for i in range(start, stop):
        c = text[i]
        if c == '"' and text[i - 1] != "\\":
            quoted = not quoted
        elif not quoted and c in "{}":
            depth += 1 if c == "{" else -1
            if depth == 0:
                return i + 1
    return None


_HANDLERS = {
    "\n": _Splitter.newline,
    "\\": _Splitter.backslash,
    "`": _Splitter.backtick,
    "^": _Splitter.caret,
    **dict.fromkeys("'\"“”‘’", _Splitter.quote),
    **dict.fromkeys(";|&", _Splitter.separator),
    "(": _Splitter.opening,
    ")": _Splitter.closing,
    "$": _Splitter.dollar,
    "{": _Splitter.brace,
    "<": _Splitter.less,
    ">": _Splitter.greater,
    "#": _Splitter.hash,
    **dict.fromkeys("–—", _Splitter.dash),
}
