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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

CHUNK = 1 << 20
EDGE = 1 << 18
"""Bytes at either end that are kept whole."""
LONGEST = 1 << 16
"""Bytes of one line that are kept while it is read: the rest can't matter, as 4,096 characters are looked at."""
MOST_LINES = 40_000
PER_SHAPE = 100
"""Lines of one shape that are kept, besides the newest."""
NEWEST = 4_000
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


def scan(stream: BinaryIO, needles: Iterable[str], notes: Sequence[str] = ()) -> Scan:
    """Read a log of any size.

    Args:
        needles: every line that holds one of these is kept (up to :data:`PER_SHAPE` of one shape, besides the newest).
        notes: literals of which a few lines are enough.
    """
    sieve = _Sieve([n.encode() for n in needles], [n.encode() for n in notes])
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
    def __init__(self, needles: list[bytes], notes: list[bytes]) -> None:
        self.result = Scan()
        self._marks = frozenset(ERROR_MARKS)
        wanted = dict.fromkeys([*needles, *ERROR_MARKS])
        self._notes = frozenset(n for n in notes if n not in wanted)
        self._reduced: dict[bytes, list[bytes]] = {}
        self._direct: list[bytes] = []
        for needle in [*wanted, *self._notes]:
            shape = needle.translate(None, _DELETE)
            if len(shape.strip()) >= 4:
                self._reduced.setdefault(shape, []).append(needle)
            else:
                self._direct.append(needle)
        self._dull: set[bytes] = set()
        self._dull_bytes = 0
        self._known: dict[bytes, _Shape] = {}
        self._kept: dict[int, bytes] = {}
        self._newest: deque[tuple[int, bytes]] = deque(maxlen=NEWEST)
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
        if fresh or direct or head or self._open_until >= start:
            self._walk(start, chunk, shapes, direct, head)
        else:
            self._before.clear()

    def _sort(self, novel: set[bytes]) -> None:
        """Part the new shapes in those that may hold a needle and those that can't."""
        blob = b"\n".join(novel)
        found = [(shape, needles) for shape, needles in self._reduced.items() if shape in blob]
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

    def _check(self, number: int, line: bytes, shape: bytes, state: _Shape | None) -> None:
        if state is None:
            self._keep(number, line)
            return
        found = [n for n in state.needles if n in line]
        if not found:
            if number <= self._open_until:
                self._keep(number, line)
            return
        state.count += 1
        notes = all(n in self._notes for n in found)
        if state.count > PER_SHAPE and state.confirmed.issuperset(found):
            self.result.truncated = True
            if not notes:
                self._newest.append((number, line[:LONGEST]))
            elif self._notes.issuperset(state.needles):
                self._dull.add(shape)
                self._known.pop(shape, None)
            return
        state.confirmed.update(found)
        self._keep(number, line, always=True)
        if not self._marks.isdisjoint(found):
            for earlier, text in self._before:
                self._keep(earlier, text)
            self._open_until = number + AFTER

    def _keep(self, number: int, line: bytes, always: bool = False) -> None:
        if always or len(self._kept) < MOST_LINES:
            self._kept[number] = line[:LONGEST]
        else:
            self.result.truncated = True
            self._newest.append((number, line[:LONGEST]))

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
        self._kept.update(self._newest)
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
    __slots__ = ("confirmed", "count", "needles")

    def __init__(self, needles: list[bytes]) -> None:
        self.needles = needles
        self.confirmed: set[bytes] = set()
        self.count = 0
