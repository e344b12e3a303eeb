"""Ask every source at once, each in a thread with a time limit: one that fails or hangs costs its facts, never the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Thread

from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.findings import Unknown
from hybridctl.errors import HybridctlError

SECONDS = 1.0
"""For reading files: an answer that takes longer comes from a file system that hangs."""
# Whatever a strange machine makes a collector raise. Anything else would be a fault of memory or of Python itself.
_SURPRISES = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)


@dataclass(frozen=True, slots=True)
class Source:
    """One place that facts come from."""

    name: str
    """What a person misses without it."""
    collect: Callable[[], Iterable[Fact | Unknown]]
    """What was yielded before a failure or the end of the time is kept."""
    seconds: float = SECONDS


class _Asked(Thread):
    def __init__(self, source: Source) -> None:
        super().__init__(name=source.name, daemon=True)  # a daemon: the end of the run does not wait for it
        self.source = source
        self.items: list[Fact | Unknown] = []
        self.refusal: HybridctlError | None = None
        self.done = False

    def run(self) -> None:
        try:
            for item in self.source.collect():
                self.items.append(item)
        except HybridctlError as error:
            self.refusal = error
        except _SURPRISES as error:
            self.items.append(Unknown(self.source.name, f"a look at it that failed: {type(error).__name__}: {error}"))
        self.done = True


class Asking:
    """Sources that are being asked: they answer while the caller does other things."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._begin = time.monotonic()
        self._asked = [_Asked(source) for source in sources]
        for thread in self._asked:
            thread.start()

    def answers(self) -> tuple[list[Fact], list[Unknown]]:
        """Facts of all sources in their order, and what could not be learned. Waits as long as the slowest one may still take.

        Raises:
            HybridctlError: a source refuses what the user asked for.
        """
        facts: list[Fact] = []
        unknown: list[Unknown] = []
        for thread in self._asked:
            thread.join(max(0.0, self._begin + thread.source.seconds - time.monotonic()))
            late = not thread.done
            if thread.refusal is not None:
                raise thread.refusal
            for item in list(thread.items):
                if isinstance(item, Fact):
                    facts.append(item)
                else:
                    unknown.append(item)
            if late:
                limit = f"{thread.source.seconds:g} s"
                unknown.append(Unknown(thread.source.name, f"an answer; none came within {limit}"))
        return facts, unknown


def ask(sources: Sequence[Source]) -> tuple[list[Fact], list[Unknown]]:
    """Ask and wait: :meth:`Asking.answers` at once."""
    return Asking(sources).answers()
