"""The lines ``[HYBRID] Selected kernel: …``: when requests start on a kernel or cross to another, a few at a time, with a count."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from hybridctl.runtime.compute_unit import FLASH, LINEAR
from hybridctl.runtime.partition import Partition
from hybridctl.runtime.step_plan import StepPlan

PREFIX = "[HYBRID] Selected kernel: "
HIGH, LOW = "flash (entropy fallback)", "linear (low entropy)"


class SelectionLog:
    """Counts selections and gives each kind of line at most once in ``every`` seconds.

    A start is seen at position 0, a crossing where a run begins at a cut of its route, so no request needs to be remembered; a
    request that begins behind cached tokens gives its first line at the next cut. What happens inside an entropy range is told by
    :meth:`band`, from the counts that the kernels bring back.

    Args:
        emit: takes a finished line, such as a logger's ``info``.
        routes: the dispatcher's routes; those that can go linear speak, or the first where none can.
    """

    def __init__(
        self,
        emit: Callable[[str], object],
        routes: Sequence[Partition],
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit, self._every, self._clock = emit, every, clock
        moving = [i for i, p in enumerate(routes) if p.state_start is not None]
        self._spoken = [(i, frozenset(routes[i].starts)) for i in (moving or [0]) if i < len(routes)]
        self._counts: dict[str, int] = {}
        self._last: dict[str, float] = {}

    def step(self, plan: StepPlan) -> None:
        """Count the rows that start or cross in this step."""
        counts = {FLASH: 0, LINEAR: 0}
        for index, starts in self._spoken:
            for kernel in counts:
                runs = plan.routes[index].of(kernel)
                begun = sum(1 for p0 in runs.p0.tolist() if p0 in starts) if len(runs) else 0
                counts[kernel] = max(counts[kernel], begun)
        for kernel, count in counts.items():
            self._add(kernel, count)

    @property
    def waiting(self) -> bool:
        """Whether something is counted that was not told yet."""
        return any(self._counts.values())

    def give_due(self) -> None:
        """Tell what is counted and may be told by now."""
        for kernel in list(self._counts):
            self._add(kernel, 0)

    def band(self, flash: int, linear: int) -> None:
        """Count positions that entropy sent to each kernel."""
        self._add(HIGH, flash)
        self._add(LOW, linear)

    def _add(self, kind: str, count: int) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + count
        now = self._clock()
        if self._counts[kind] and now - self._last.get(kind, -self._every) >= self._every:
            self._give(kind, now)

    def _give(self, kind: str, now: float) -> None:
        count = self._counts[kind]
        more = f" (×{count})" if count > 1 else ""
        self._counts[kind], self._last[kind] = 0, now
        self._emit(f"{PREFIX}{kind}{more}")

    def flush(self) -> None:
        """Give what is still counted."""
        for kind, count in list(self._counts.items()):
            if count:
                self._give(kind, self._clock())
