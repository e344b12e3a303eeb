"""How far a start has got, and which lines of the log a person wants to see meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from hybridctl.doctor.logreader.phase_table import phase_of
from hybridctl.doctor.phases import PHASES

WORDS = {
    "import": "importing vLLM",
    "config": "reading the configuration",
    "load": "loading weights",
    "profile": "profiling and compiling",
    "kv-cache": "laying out the cache",
    "capture": "warming up",
    "ready": "starting the HTTP server",
}
_OURS = re.compile(r"\[HYBRID\] .*")


class Phases:
    """The furthest phase that the log has told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        self.reached: str | None = None

    @property
    def seconds(self) -> float:
        return self._clock() - self._begun

    @property
    def words(self) -> str:
        return WORDS.get(self.reached or "", "starting Python")

    def take(self, line: str) -> bool:
        """Whether the line tells a new phase of the start."""
        found = phase_of(line)
        if found is None or "ERROR" in line[:80] or found[0] not in WORDS:
            return False
        if self.reached is not None and PHASES.index(found[0]) <= PHASES.index(self.reached):
            return False
        self.reached = found[0]
        return True


def worth_showing(line: str, started: bool) -> str | None:
    """The line as it is shown, None where it would only be noise.

    During a start: our own lines alone, for what goes wrong is told at the end, in one piece. Once started: all but the answers to
    /health and /metrics.
    """
    if ours := _OURS.search(line):
        return ours[0]
    return line if started and '"GET /health' not in line and '"GET /metrics' not in line else None
