"""What a PTX text says: its ISA, its target, its entries, and whether arithmetic in it was made approximate by fast-math.

Sources: PTX ISA documentation (https://docs.nvidia.com/cuda/parallel-thread-execution/) for the instructions; which of them a
compiler writes with and without ``--use_fast_math`` was read from the output of nvcc 13.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# exp2 is the last step of a precise expf as well, so ex2.approx(.ftz) is no sign of fast-math; everything else here is.
_APPROXIMATE = re.compile(r"\b(div|sqrt|rsqrt|rcp|sin|cos|lg2|tanh)\.(?:approx|full)[\w.]*")
_FLUSHED = re.compile(
    r"\b(?:add|sub|mul|mad|fma|div|rcp|sqrt|abs|neg|min|max|set|setp|slct|cvt)(?:\.\w+)*\.ftz(?:\.\w+)*"
)
_VERSION = re.compile(r"^\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(r"^\.target\s+(\w+)", re.MULTILINE)
_ENTRY = re.compile(r"^\s*(?:\.visible\s+)?\.entry\s+(\w+)", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class FastMath:
    """One approximate instruction: its line (1-based) and what it is."""

    line: int
    instruction: str


def isa(text: str) -> tuple[int, int] | None:
    """The PTX ISA version of a text, None where it states none."""
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else None


def target(text: str) -> str:
    """The target of a text, such as ``sm_80``; empty where it states none."""
    found = _TARGET.search(text)
    return found[1] if found else ""


def entries(text: str) -> tuple[str, ...]:
    """Names of the kernels."""
    return tuple(_ENTRY.findall(text))


def fast_math(text: str) -> list[FastMath]:
    """Every instruction that only fast-math writes. Comments don't count."""
    bare = _COMMENT.sub(lambda m: "\n" * m[0].count("\n"), text)
    found = []
    for number, line in enumerate(bare.split("\n"), 1):
        matches = {m.start(): m[0] for pattern in (_FLUSHED, _APPROXIMATE) for m in pattern.finditer(line)}
        found += [FastMath(number, matches[start]) for start in sorted(matches)]
    return found
