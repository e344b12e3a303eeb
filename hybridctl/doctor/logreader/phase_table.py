"""Which line tells which stage of a start. Texts as printed by vLLM 0.8 to 0.33, SGLang, llama.cpp and Ollama."""

# ruff: noqa: E501  (tables of patterns read best a row a line)
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from hybridctl.doctor.logreader.prefixes import rank_of
from hybridctl.doctor.logreader.records import Line, PhaseTime
from hybridctl.doctor.phases import PHASES


@dataclass(frozen=True, slots=True)
class Marker:
    """``text`` is a literal part of the line. ``phase`` is entered when it is printed: what lies before is done.

    A phase that the line *ends* is not counted as past unless the next one has begun, since only the next one's lines prove it.
    """

    text: str
    phase: str
    seconds: str = ""
    """Pattern whose group 1 is the duration of ``of``."""
    of: str = ""


MARKERS: tuple[Marker, ...] = (
    Marker("Automatically detected platform", "import"),
    Marker("vLLM API server version", "config"),
    Marker("vLLM server version", "config"),
    Marker("non-default args:", "config"),
    Marker("Resolved architecture:", "config"),
    Marker("Using max model len", "config"),
    Marker("Initializing a V", "config"),
    Marker("Worker ready; awaiting tasks", "config"),
    Marker("distributed_init_method=", "config"),
    Marker("Initializing an LLM engine", "config"),
    Marker("server_args=ServerArgs(", "config"),
    Marker("Starting to load model", "load"),
    Marker("Loading safetensors checkpoint shards", "load"),
    Marker("Loading safetensors using", "load"),
    Marker("Loading pt checkpoint shards", "load"),
    Marker("Multi-thread loading shards", "load"),
    Marker("Loading weights took", "load", r"Loading weights took ([\d.]+) s", "load"),
    Marker("Load weight begin", "load"),
    Marker("Model loading took", "profile", r"Model loading took .* and ([\d.]+) seconds", "load"),
    Marker("Loading model weights took", "profile"),
    Marker("Load weight end", "profile"),
    Marker("Dynamo bytecode transform time", "profile"),
    Marker("torch.compile takes", "profile", r"torch\.compile takes ([\d.]+) s in total", "profile"),
    Marker("torch.compile took", "profile", r"torch\.compile took ([\d.]+) s in total", "profile"),
    Marker("Memory profiling takes", "kv-cache"),
    Marker("Available KV cache memory", "kv-cache"),
    Marker("KV cache size:", "kv-cache"),
    Marker("# GPU blocks:", "kv-cache"),
    Marker("# cuda blocks:", "kv-cache"),
    Marker("Maximum concurrency for", "kv-cache"),
    Marker("KV Cache is allocated", "kv-cache"),
    Marker("Memory pool end", "kv-cache"),
    Marker("Capturing CUDA graph", "capture"),
    Marker("Capturing cudagraphs", "capture"),
    Marker("Capture cuda graph begin", "capture"),
    Marker("Capture cuda graph end", "capture", r"Time elapsed: ([\d.]+) s", "capture"),
    Marker("Graph capturing finished", "capture", r"Graph capturing finished in ([\d.]+) secs", "capture"),
    Marker("init engine (profile, create kv cache, warmup model) took", "capture"),
    Marker("Application startup complete", "ready"),
    Marker("The server is fired up and ready to roll", "ready"),
    Marker("server is listening on", "ready"),
    Marker("llama runner started in", "ready"),
    Marker("Avg prompt throughput", "serving"),
    Marker("Avg generation throughput", "serving"),
)
_REQUEST = re.compile(
    r'"POST (?:\S*/)?(?:v1/(?:chat/completions|completions|embeddings|responses|messages|rerank|score|audio\S*)|generate|api/\w+)\S* HTTP/[\d.]+" 200'
)
NOTES = (*dict.fromkeys(m.text for m in MARKERS), 'HTTP/1.1" 200')
SERVED = "serving"


def phase_of(body: str) -> tuple[str, str, Marker | None] | None:
    """``(phase, the text that says so, its marker)`` of a line that tells one."""
    for marker in MARKERS:
        if marker.text in body:
            return marker.phase, marker.text, marker
    if '" 200' in body and (m := _REQUEST.search(body)):
        return SERVED, m[0], None
    return None


@dataclass(slots=True)
class Progress:
    """The phases of the last run in a log."""

    phases: list[PhaseTime]
    reached: str | None
    quote: str
    line: int
    marks: list[tuple[Line, str]]
    """Every line that told a phase, of all runs."""


def follow(lines: Iterable[Line], first_line: int = 0) -> Progress:
    """Put the phase lines together.

    A phase that workers enter one by one counts as reached when every worker that tells its phases is there.
    """
    marks: list[tuple[Line, str]] = []
    quotes: dict[int, str] = {}
    printed: dict[str, float] = {}
    for line in lines:
        found = phase_of(line.body)
        if found is None or line.level == "ERROR":
            continue
        phase, quote, marker = found
        marks.append((line, phase))
        quotes[id(line)] = quote
        if line.number < first_line:
            continue
        if marker and marker.seconds and (m := re.search(marker.seconds, line.body)):
            printed[marker.of] = max(printed.get(marker.of, 0.0), _number(m[1]))
    current = [(x, p) for x, p in marks if x.number >= first_line]
    phases = _times(current, quotes, printed)
    line_reached, reached = _reached(current)
    return Progress(
        phases,
        reached,
        quotes[id(line_reached)] if line_reached else "",
        line_reached.number if line_reached else 0,
        marks,
    )


def _reached(marks: Sequence[tuple[Line, str]]) -> tuple[Line | None, str | None]:
    furthest: dict[str, tuple[int, Line]] = {}
    for line, phase in marks:
        index = PHASES.index(phase)
        key = line.key if rank_of(line.process) == 0 and line.process else ""
        if key not in furthest or index > furthest[key][0]:
            furthest[key] = (index, line)
    workers = [v for k, v in furthest.items() if k]
    candidates = [furthest[""]] if "" in furthest else []
    if workers:
        candidates.append(min(workers, key=lambda v: v[0]))
    if not candidates:
        return None, None
    index, line = max(candidates, key=lambda v: v[0])
    return line, PHASES[index]


def _times(marks: Sequence[tuple[Line, str]], quotes: dict[int, str], printed: dict[str, float]) -> list[PhaseTime]:
    first: dict[str, Line] = {}
    for line, phase in marks:
        known = first.get(phase)
        if known is None or (line.clock is not None and (known.clock is None or line.clock < known.clock)):
            first[phase] = line
    ordered = [p for p in PHASES if p in first]
    out = []
    for phase, following in zip_longest(ordered, ordered[1:]):
        line = first[phase]
        seconds = printed.get(phase)
        if seconds is None and following is not None:
            after = first[following].clock
            if after is not None and line.clock is not None and after >= line.clock:
                seconds = after - line.clock
        out.append(PhaseTime(phase, line.number, line.stamp, seconds, quotes[id(line)]))
    return out


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
