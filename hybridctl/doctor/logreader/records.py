"""What the reader makes of a log: lines, errors, phases."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_LINE = 4096
"""Characters of a line that are looked at: enough for every message, and no regex ever sees a 10 MB line."""


@dataclass(slots=True)
class Line:
    """One line, taken apart. ``text`` is the line without colour codes; ``body`` is ``text`` without its prefixes."""

    number: int
    text: str
    body: str
    process: str = ""
    """``EngineCore_DP0 pid=60``, ``Worker_TP0_EP0 pid=331``, ``rank0``, ``TP2``; empty when the line does not say."""
    container: str = ""
    level: str = ""
    """DEBUG, INFO, WARNING, ERROR or empty."""
    where: str = ""
    """Source place that a logger printed (``core.py:718``)."""
    stamp: str = ""
    """Time stamp as printed."""
    clock: float | None = None
    """Seconds since 1 January (years are not compared: vLLM prints none)."""
    style: str = ""
    """The prefix that was found last: ``vllm``, ``sglang``, ``stamp`` …"""

    @property
    def key(self) -> str:
        return f"{self.container}/{self.process}" if self.container else self.process


@dataclass(slots=True)
class LogError:
    """One error as one process printed it.

    ``type`` is ``None`` when the line that names the exception is cut off; ``message`` is then the deepest frame,
    or the bare ``assert`` or ``raise`` line.
    """

    process: str
    line: int
    """Line of the exception itself; of the deepest frame when that is cut off. 1-based."""
    type: str | None
    message: str
    text: str
    """All lines of it, prefixes removed."""
    chain: int = 0
    """Place in its chain of exceptions: 0 is the first cause."""
    first_line: int = 0
    last_line: int = 0
    frame: str = ""
    """Deepest frame, as ``path:line in function``."""
    kind: str = "exception"
    """exception, fragment (a traceback without its end), fault (compiler, kernel, native crash), line (a logged error)."""
    wrapper: bool = False
    """Only reports that another process or call failed."""
    soft: bool = False
    """Counts only when there is nothing better: logged as a warning, or usually the consequence of something else."""
    benign: bool = False
    survived: bool = False
    """The server went on after it."""
    clock: float | None = None
    chain_id: int = 0
    key: str = ""
    lines: list[int] = field(default_factory=list)
    """Line numbers of the text."""

    @property
    def headline(self) -> str:
        """``Type: message``, first line only."""
        first = self.message.splitlines()[0] if self.message else ""
        return f"{self.type}: {first}" if self.type and first else self.type or first


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """When a start phase (:data:`hybridctl.doctor.phases.PHASES`) was first seen.

    ``seconds`` is what the log printed for it, else the time up to the next phase seen; ``None`` when neither is there.
    """

    name: str
    line: int
    stamp: str
    seconds: float | None
    quote: str
