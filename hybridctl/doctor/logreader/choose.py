"""Which error began the fall."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from hybridctl.doctor.logreader.phase_table import SERVED
from hybridctl.doctor.logreader.prefixes import rank_of
from hybridctl.doctor.logreader.records import Line, LogError
from hybridctl.doctor.logreader.wrappers import DEATH

_DIGITS = re.compile(r"0x[0-9a-f]+|\d+")
_BANNER = re.compile(r"vLLM (?:API )?server version|server_args=ServerArgs\(|█\s+version \d")
_YEAR = 366 * 86400.0


def last_run(lines: Sequence[Line]) -> int:
    """The line at which the last start begins: containers that restart write several into one log. 0: only one."""
    starts: list[Line] = [x for x in lines if _BANNER.search(x.body)]
    begin = 0
    for earlier, later in itertools.pairwise(starts):
        # One start prints the banner in several forms at once.
        apart = (
            later.clock - earlier.clock
            if later.clock is not None and earlier.clock is not None
            else later.number - earlier.number
        )
        if later.key == earlier.key and apart > 5:
            begin = later.number
    return begin


def same_error(a: LogError, b: LogError) -> bool:
    """Whether two processes printed one and the same error (numbers aside: ranks, process ids and addresses differ)."""
    return a.type == b.type and _shape(a.message) == _shape(b.message)


def _shape(message: str) -> str:
    return _DIGITS.sub("0", message.split("\n", 1)[0])[:300]


def mark_survivors(
    errors: Sequence[LogError], lines: Sequence[Line], marks: Sequence[tuple[Line, str]], run: int
) -> None:
    """Find the errors that nobody died of: the process itself, or the whole server, went on to start and serve."""
    deaths = [x for x in lines if DEATH.search(x.body) and x.level not in ("INFO", "DEBUG")]
    healthy = [(x, p) for x, p in marks if p in ("ready", SERVED)]
    for error in errors:
        later_death = any(_after(x, error) or x.number >= error.first_line for x in deaths)
        came_up = any(_after(x, error) and x.number >= run for x, _ in healthy)
        went_on = any(x.key == error.key and error.key and _after(x, error) for x, _ in marks)
        error.survived = (came_up and not later_death) or went_on


def _after(line: Line, error: LogError) -> bool:
    if line.stamp and line.clock is not None and error.clock is not None:
        apart = line.clock - error.clock
        if abs(apart) > _YEAR / 2:
            apart -= _YEAR if apart > 0 else -_YEAR
        if apart:
            return apart > 0
        return line.key == error.key and line.number > error.last_line
    return line.number > error.last_line


def choose(errors: Sequence[LogError], run: int) -> LogError | None:
    """The error that began the fall: no wrapper, not benign, not survived; the first cause of its chain; the earliest of all."""
    pool = [e for e in errors if not (e.wrapper or e.benign or e.survived)]
    pool = [e for e in pool if e.line >= run] or pool
    if not pool:
        return None
    rolled = _year_turns(pool)
    best = min(_class(e) for e in pool)
    pool = [e for e in pool if _class(e) == best]

    def order(e: LogError) -> tuple[float, int, int]:
        clock = e.clock if e.clock is not None else 0.0
        if rolled and clock < _YEAR / 2:
            clock += _YEAR
        return clock, rank_of(e.process), e.line

    timed = all(e.clock is not None for e in pool)
    first = min(pool, key=order) if timed else min(pool, key=lambda e: e.line)
    members = [e for e in pool if e.chain_id == first.chain_id and e.key == first.key]
    return min(members, key=lambda e: e.chain)


def _class(e: LogError) -> int:
    if e.kind == "line":
        return 5 if e.soft else 4
    if e.kind == "fragment":
        return 2 if e.message.startswith(("assert", "raise")) else 3  # the very statement that failed says more
    return 1 if e.soft else 0


def _year_turns(pool: Sequence[LogError]) -> bool:
    clocks = [e.clock for e in pool if e.clock is not None]
    return bool(clocks) and max(clocks) - min(clocks) > _YEAR / 2


def family(errors: Sequence[LogError], innermost: LogError | None) -> set[int]:
    """Places in ``errors`` of the innermost error, the links of its chain, and the same ones as other processes printed them."""
    if innermost is None:
        return set()
    if innermost.kind == "fragment":  # pieces of one traceback that was cut out of a log
        return {i for i, e in enumerate(errors) if e.kind == "fragment"}
    own = [e for e in errors if e.key == innermost.key and e.chain_id == innermost.chain_id and not e.wrapper]
    return {i for i, e in enumerate(errors) if any(e is o or (not e.wrapper and same_error(e, o)) for o in own)}
