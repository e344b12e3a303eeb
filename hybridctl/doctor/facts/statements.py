"""What the parsers of pasted text hand over: single statements, and lists of GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.model import Value
from hybridctl.doctor.facts.package_names import normalise
from hybridctl.patterns import late

STATED, IMPLIED = 0, 1

_VERSION_LIKE = late(r"\s*(?:[~<>=!^]{1,2}\s*)?v?\d")
_DATE = late(r"\s*(?:19|20)\d\d-\d\d(?:-\d\d)?\b")
_CUDA_TAG = late(r"(?<![A-Za-z0-9])cu(\d{2,3})(?![0-9])")
_ROCM_TAG = late(r"\+rocm(\d+(?:\.\d+)+)")
_CPU_TAG = late(r"\+(cpu|xpu)\b")
_TORCH_INSIDE = late(r"\b(?:torch|pytorch)[ =:]+v?(\d[\w.+]*)", re.IGNORECASE)
_NOTHING = late(
    r"\s*(?:n/?a\b.*|none|null|nil|unknown|\?+|-+|could not collect.*|not (?:found|installed|available|set|collected).*|"
    r"module not found.*|no module.*|error.*|err!.*|undefined)?\s*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """``key`` has ``value``; ``quote`` is the part of the line that says so."""

    key: str
    value: Value
    line: int
    quote: str
    rank: int = STATED
    """``IMPLIED`` counts only where nothing in the text states the key."""


@dataclass(slots=True)
class GpuRow:
    """One GPU of a listing (``count`` of them, when the line says so)."""

    name: str
    line: int
    quote: str
    index: int | None = None
    count: int = 1
    counted: bool = True
    """Whether the text says how many there are; a line that only names the type does not."""
    memory_gib: float | None = None
    memory_quote: str = ""
    memory_line: int = 0
    cc: str | None = None

    def sized(self, gib: float, quote: str, line: Line) -> None:
        """Set the memory that a line states, with the place of it."""
        self.memory_gib, self.memory_quote, self.memory_line = gib, quote.strip(), line.number


@dataclass(slots=True)
class Found:
    """What one parser found. Each list of GPUs is one listing of one machine."""

    statements: list[Statement] = field(default_factory=list)
    gpus: list[list[GpuRow]] = field(default_factory=list)

    def say(self, key: str, value: Value, line: Line, rank: int = STATED, quote: str | None = None) -> None:
        self.statements.append(Statement(key, value, line.number, (quote or line.text).strip(), rank))

    def package(self, name: str, version: str, line: Line, rank: int = STATED) -> None:
        """A package and what its version tells besides: the CUDA or ROCm that it was built for."""
        key = normalise(name)
        version = version.strip().strip("'\"`,;")
        if key == "python":
            self.version("platform.python", version.split()[0] if version else "", line, rank)
            return
        if is_version(version):
            self.say(f"pkg.{key}", version, line, rank)
            if key.startswith("nvidia-nccl-cu"):
                self.say("pkg.nccl", version, line, IMPLIED)
        if key == "torch":
            self._torch_built_for(version, line)
        elif key == "vllm" and (cuda := cuda_of_tag(version)):
            self.say("vllm.cuda", cuda, line, IMPLIED)
        if re.match(r"docker\b", version, re.IGNORECASE):
            self.say("platform.container", True, line, IMPLIED)
        if key != "torch" and (inside := _TORCH_INSIDE.search(version)):
            self.say("pkg.torch", inside[1], line, IMPLIED)
            self._torch_built_for(inside[1], line)

    def _torch_built_for(self, version: str, line: Line) -> None:
        if cuda := cuda_of_tag(version):
            self.say("torch.cuda", cuda, line, IMPLIED)
            self.say("torch.build", "cuda", line, IMPLIED)
        elif rocm := _ROCM_TAG.search(version):
            self.say("torch.rocm", rocm[1], line, IMPLIED)
            self.say("torch.build", "rocm", line, IMPLIED)
        elif other := _CPU_TAG.search(version):
            self.say("torch.build", other[1], line, IMPLIED)

    def version(self, key: str, text: str, line: Line, rank: int = STATED) -> None:
        """A version, if the text is one."""
        if is_version(text):
            self.say(key, text.strip(), line, rank)


def is_version(text: str) -> bool:
    """Whether a value begins as a version does; "latest PyPI (2025-04)" and "docker" don't."""
    return bool(_VERSION_LIKE.match(text)) and not _DATE.match(text) and len(text) <= 200


def is_nothing(text: str) -> bool:
    """Whether a program wrote that it knows no value: ``N/A``, ``Could not collect``, ``None``."""
    return bool(_NOTHING.match(text[:200]))


def cuda_of_tag(text: str) -> str | None:
    """``12.9`` of ``2.13.0+cu129`` or ``nightly cu129``; ``13`` of ``cu13``; ``None`` without such a tag."""
    if " torch" in text or "(torch" in text:
        text = re.sub(r"\(?\btorch\b.*", "", text)
    found = _CUDA_TAG.search(text)
    if not found:
        return None
    digits = found[1]
    if len(digits) == 2 and digits in ("11", "12", "13", "14"):
        return digits
    return f"{digits[:-1]}.{digits[-1]}"
