"""The n-gram table (PLE) of Qwen4Exp: how large it is, and whether this launch keeps it on the GPU or in host memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Evidence

# 320,001,536 rows of 160 numbers.
TABLE_GIB = {"bfloat16": 95.4, "fp8": 47.7, "nvfp4": 26.8}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the table lies; ``None`` when the version or the launch line does not tell."""

    where: Literal["gpu", "host"] | None
    says: list[Evidence]
    asked: bool | None
    """Whether the launch asks for the table in host memory; ``None`` when the launch line is not known."""


def table_gib(facts: Facts) -> tuple[float, Evidence] | None:
    """Size of the table in GiB; the smallest one that the facts allow (NVFP4 checkpoints carry an NVFP4 or an FP8 table)."""
    stated = facts.get("config.ple_embedding_dtype")
    if stated:
        name = str(stated.value).lower()
        kind = "nvfp4" if "nvfp4" in name else "fp8" if "8" in name else "bfloat16"
        return TABLE_GIB[kind], read.quote(stated)
    for kind, pattern in (("nvfp4", "nvfp4"), ("fp8", "fp8*"), ("bfloat16", "none")):
        hit, fact = read.matching(facts, "model.quant", pattern)
        if hit and fact:
            return TABLE_GIB[kind], read.quote(fact)
    return None


def placement(facts: Facts) -> Placement:
    """By version: 0.29 has no host path, 0.30 and later use one unless told otherwise, the preview image only when asked."""
    asked, how = _asked(facts)
    says = [read.quote(how)] if how else []
    vllm = read.version(facts, "pkg.vllm")
    if vllm is None:
        where: Literal["gpu", "host"] | None = "host" if asked else None
        return Placement(where, says, asked)
    if vllm.within(">=0.29.0,<0.30.dev0"):
        return Placement("gpu", [vllm.evidence(">=0.30"), *says], asked)
    if vllm.within(">=0.30.0"):
        off = asked is False and how is not None
        by_env = how is not None and how.key.startswith("env.")
        ignored = by_env and vllm.within(">=0.31") is True
        return Placement("gpu" if off and not ignored else "host", [vllm.evidence(), *says], asked)
    return Placement(None, says, asked)


def _asked(facts: Facts) -> tuple[bool | None, Fact | None]:
    for key in ("flag.engram-config.cpu_offload", "env.VLLM_PLE_CPU_OFFLOAD"):
        if fact := facts.get(key):
            return str(fact.value).strip().lower() not in ("0", "false", "no", "off", ""), fact
    if fact := facts.get("flag.engram-config"):
        text = "".join(str(fact.value).lower().split())
        if "cpu_offload" in text:
            return 'cpu_offload":false' not in text and "cpu_offload:false" not in text, fact
    return (False if facts.flags_known() else None), None
