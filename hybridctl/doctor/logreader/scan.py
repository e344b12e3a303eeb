"""Choosing the lines of a log that are worth reading, at the speed of bytes.

A server's log is the same few hundred sentences with other numbers in them. So a line is reduced to its *shape* (digits, the
letters a-f and the dash are deleted: numbers and request ids vanish), and each shape is looked at once: if no needle, reduced the
same way, stands in it, then no line of that shape can hold that needle, and all of them are skipped without a Python step per
line. Lines of the remaining shapes are checked one by one, as they are. The head and the tail are kept whole, and so are the
lines around an error mark.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

CHUNK = 1 << 20
EDGE = 1 << 18
"""Bytes at either end that are kept whole."""
LONGEST = 1 << 16
"""Bytes of one line that are kept while it is read: the rest can't matter, as 4,096 characters are looked at."""
MOST_LINES = 40_000
PER_SHAPE = 100
"""Lines of one shape that are kept."""
BEFORE, AFTER = 6, 90
SHAPE_BYTES = 16 << 20

# Marks of an error: the lines around them are kept too.
ERROR_MARKS = (
    b"Traceback (most recent", b"Error", b"ERROR", b"Exception", b'  File "', b"CRITICAL", b"FATAL", b"fatal error",
    b"ptxas fatal", b"nvcc fatal", b"Fatal Python", b"panicked at", b"Segfault", b"Segmentation fault", b"core dumped",
    b"terminate called", b"what():", b"Killed", b"NVRM: Xid", b"oom-kill", b"Out of memory", b"GGML_ASSERT", b"Assertion",
    b"undefined reference", b"cannot open shared object", b"error: ", b"error loading", b"Aborted", b"SIGSEGV", b"SIGKILL",
    b"SIGABRT", b"Bus error", b"invalid pointer", b"double free", b"exited with code", b"exit code", b"OOMKilled", b"level=ERROR",
    b"level=error", b"NCCL WARN", b"command not found", b"unrecognized arguments", b"died unexpectedly",
)  # fmt: skip

MANY_NEW = 1 << 14
_INNER = re.compile(rb"(?<=\s)\S+(?=\s)")
_DELETE = b"0123456789abcdef-"
_CODES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
_CR = re.compile(rb"\r+\n")


@dataclass
class Scan:
    """The lines that were kept, in order, and how much there was."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    total: int = 0
    size: int = 0
    truncated: bool = False
    """Lines of a repeated shape, or the end of a huge line, were left out."""


def scan(
    stream: BinaryIO,
    needles: Mapping[str, Collection[int]],
    notes: Sequence[str] = (),
    fits: Callable[[str, str], Collection[int]] = lambda needle, line: (0,),
) -> Scan:
    """Read a log of any size.

    Args:
        needles: lines that hold one of these are kept: the first :data:`PER_SHAPE` of a shape, and after that those that answer
            a question which no line of the shape has answered yet. The questions of a needle are given as numbers.
        notes: literals of which a few lines are enough.
        fits: which of its needle's questions a line answers. Asked for repeated shapes only.
    """
    sieve = _Sieve({n.encode(): q for n, q in needles.items()}, [n.encode() for n in notes], fits)
    for start, chunk in _chunks(stream, sieve.result):
        sieve.take(start, chunk)
    return sieve.finish()


def _chunks(stream: BinaryIO, result: Scan) -> Iterator[tuple[int, bytes]]:
    """Pieces that end at a line's end, without colour codes and with plain line ends; and the number of their first line."""
    number, rest = 1, b""
    decoder: codecs.IncrementalDecoder | None = None
    dropping = False
    while True:
        block = stream.read(CHUNK)
        if result.size == 0 and block[:2] in (b"\xff\xfe", b"\xfe\xff"):
            decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        result.size += len(block)
        raw = decoder.decode(block, not block).encode() if decoder else block
        if not block and not raw:
            break
        if dropping:
            cut = raw.find(b"\n")
            if cut < 0:
                continue
            raw, dropping = raw[cut:], False
        data = rest + raw if rest else raw
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            piece = data[:end]
            yield number, _plain(piece)
            number += piece.count(b"\n")
        if len(rest) > LONGEST and b"\r" not in rest:
            rest, dropping, result.truncated = rest[:LONGEST], True, True
        elif len(rest) > 4 * CHUNK:  # progress bars without end: only the newest say anything
            rest, result.truncated = rest[-LONGEST:], True
    if rest:
        yield number, _plain(rest + b"\n")
        number += 1
    result.total = number - 1


def _plain(data: bytes) -> bytes:
    if b"\x1b" in data:
        data = _CODES.sub(b"", data)
    if b"\r" in data:
        data = _CR.sub(b"\n", data).replace(b"\r", b"\x0b")
    return data


class _Sieve:
    def __init__(
        self,
        needles: Mapping[bytes, Collection[int]],
        notes: list[bytes],
        fits: Callable[[str, str], Collection[int]],
    ) -> None:
        self.result = Scan()
        self._fits = fits
        self._marks = frozenset(ERROR_MARKS)
        wanted = dict.fromkeys([*needles, *ERROR_MARKS])
        self._notes = frozenset(n for n in notes if n not in wanted)
        self._questions = needles
        self._reduced: dict[bytes, list[bytes]] = {}
        self._direct: list[bytes] = []
        for needle in [*wanted, *self._notes]:
            shape = needle.translate(None, _DELETE)
            if len(shape.strip()) >= 4:
                self._reduced.setdefault(shape, []).append(needle)
            else:
                self._direct.append(needle)
        # Words with a blank on both sides within the needle: the line must have them as they are.
        self._longest = {shape: max(shape.split(), key=len) for shape in self._reduced}
        self._words = {shape: frozenset(_INNER.findall(shape)) for shape in self._reduced}
        self._dull: set[bytes] = set()
        self._dull_bytes = 0
        self._known: dict[bytes, _Shape] = {}
        self._kept: dict[int, bytes] = {}
        self._last: list[tuple[int, bytes]] = []
        self._open_until = 0
        self._before: deque[tuple[int, bytes]] = deque(maxlen=BEFORE)
        self._seen_bytes = 0

    def take(self, start: int, chunk: bytes) -> None:
        self._last = [*self._last[-1:], (start, chunk)]
        shapes = chunk.translate(None, _DELETE).split(b"\n")
        fresh = set(shapes).difference(self._dull)
        if novel := fresh.difference(self._known):
            self._sort(novel)
            fresh.difference_update(self._dull)
        direct = [d for d in self._direct if d in chunk]
        head = max(0, EDGE - self._seen_bytes)
        self._seen_bytes += len(chunk)
        if direct or head or self._open_until >= start:
            self._walk(start, chunk, shapes, direct, head)
        elif fresh:
            self._hop(start, chunk, shapes, fresh)
        else:
            self._before.clear()

    def _sort(self, novel: set[bytes]) -> None:
        """Part the new shapes in those that may hold a needle and those that can't."""
        blob = b"\n".join(novel)
        reduced = self._reduced
        if len(blob) > MANY_NEW:  # searching all of it for every needle would cost more than looking its words up
            words = set(blob.split())
            vocabulary = b"\n".join(words)
            reduced = {
                shape: needles
                for shape, needles in reduced.items()
                if self._words[shape] <= words and self._longest[shape] in vocabulary
            }
        found = [(shape, needles) for shape, needles in reduced.items() if shape in blob]
        for shape in novel:
            hits = [n for reduced, needles in found if reduced in shape for n in needles]
            if hits:
                self._known[shape] = _Shape(hits)
            else:
                self._dull.add(shape)
                self._dull_bytes += len(shape) + 60
        if self._dull_bytes > SHAPE_BYTES:
            self._dull.clear()
            self._dull_bytes = 0
        if len(self._known) > MOST_LINES:
            self._known.clear()

    def _walk(self, start: int, chunk: bytes, shapes: list[bytes], direct: list[bytes], head: int) -> None:
        known, kept, before = self._known, self._kept, self._before
        offset = 0
        for number, (line, shape) in enumerate(zip(chunk.split(b"\n"), shapes, strict=True), start):
            offset += len(line) + 1
            if offset <= head:
                kept[number] = line[:LONGEST]
            state = known.get(shape)
            if state is not None or (direct and any(d in line for d in direct)):
                self._check(number, line, shape, state)
            elif number <= self._open_until:
                self._keep(number, line)
            before.append((number, line))

    def _hop(self, start: int, chunk: bytes, shapes: list[bytes], fresh: set[bytes]) -> None:
        """As :meth:`_walk`, from one line of a shape that matters to the next: a status line is one in a thousand."""
        lines = chunk.split(b"\n")
        present: dict[bytes, bool] = {}
        known = self._known
        hot = {s for s in fresh if (state := known.get(s)) is not None and self._may_say_more(state, chunk, present)}
        for index in [i for i, shape in enumerate(shapes) if shape in hot] if hot else ():
            shape = shapes[index]
            state = known.get(shape)
            if state is None:  # every question about it was answered further up
                continue
            if state.count > PER_SHAPE:
                self._check_repeated(start + index, lines[index], shape, state)
                continue
            first = max(0, index - BEFORE)
            self._before.extend(enumerate(lines[first:index], start + first))
            self._check(start + index, lines[index], shape, state)
            if self._open_until > start + index:
                self._walk(start + index + 1, b"\n".join(lines[index + 1 :]), shapes[index + 1 :], [], 0)
                return
        last = max(0, len(lines) - 1 - BEFORE)
        self._before.extend(enumerate(lines[last:-1], start + last))

    @staticmethod
    def _may_say_more(state: _Shape, chunk: bytes, present: dict[bytes, bool]) -> bool:
        """Whether a line of the shape in this chunk can matter: of a repeated one, only with a needle that is still asked for."""
        if state.count <= PER_SHAPE or state.questions is None:
            return True
        for needle in state.questions:
            if needle not in present:
                present[needle] = needle in chunk
        return any(present[needle] for needle in state.questions)

    def _check(self, number: int, line: bytes, shape: bytes, state: _Shape | None) -> None:
        if state is None:
            self._keep(number, line)
            return
        if state.count > PER_SHAPE:
            self._check_repeated(number, line, shape, state)
            if number <= self._open_until:
                self._keep(number, line)
            return
        found = [n for n in state.needles if n in line]
        if not found:
            if number <= self._open_until:
                self._keep(number, line)
            return
        state.count += 1
        state.kept.append(number)
        self._keep(number, line, always=True)
        if not self._marks.isdisjoint(found):
            for earlier, text in self._before:
                self._keep(earlier, text)
            self._open_until = number + AFTER

    def _check_repeated(self, number: int, line: bytes, shape: bytes, state: _Shape) -> None:
        """The lines kept of this shape show what it says. Another one is kept only for a needle that none of them answered."""
        self.result.truncated = True
        if state.questions is None:
            kept = [self._kept[n] for n in state.kept if n in self._kept]
            state.questions = {n: set(q) for n in state.needles if (q := self._questions.get(n))}
            for earlier in kept:
                self._answer(state.questions, earlier)
        if self._answer(state.questions, line):
            self._keep(number, line, always=True)
        if not state.questions:
            self._dull.add(shape)
            self._known.pop(shape, None)

    def _answer(self, questions: dict[bytes, set[int]], line: bytes) -> bool:
        """Strike out what the line answers; whether it was anything."""
        struck = False
        for needle in [n for n in questions if n in line]:
            answers = questions[needle].intersection(
                self._fits(needle.decode(), line[:LONGEST].decode("utf-8", "replace"))
            )
            struck = struck or bool(answers)
            questions[needle] -= answers
            if not questions[needle]:
                del questions[needle]
        return struck

    def _keep(self, number: int, line: bytes, always: bool = False) -> None:
        if always or len(self._kept) < MOST_LINES:
            self._kept[number] = line[:LONGEST]
        else:
            self.result.truncated = True

    def finish(self) -> Scan:
        budget = EDGE
        for start, chunk in reversed(self._last):
            rows = chunk.split(b"\n")[:-1]
            for number in range(start + len(rows) - 1, start - 1, -1):
                line = rows[number - start]
                budget -= len(line) + 1
                if budget < 0:
                    break
                self._kept[number] = line[:LONGEST]
            if budget < 0:
                break
        out = self.result.lines
        for number in sorted(self._kept):
            if number > self.result.total:
                continue
            text = self._kept[number].decode("utf-8", "replace")
            if "\x0b" not in text:
                out.append((number, text))
                continue
            parts = [p for p in text.split("\x0b") if p.strip()]
            out += [(number, p) for p in parts[-200:]]
        return self.result


class _Shape:
    __slots__ = ("count", "kept", "needles", "questions")

    def __init__(self, needles: list[bytes]) -> None:
        self.needles = needles
        self.kept: list[int] = []
        self.questions: dict[bytes, set[int]] | None = None
        self.count = 0
