"""Which memory rules a vLLM release follows, and what it takes when a flag is not given.

Measured: 0.30.0 and 0.32.0 (their CPU builds, tests/data/fit). 0.33 was read, and has the rules of 0.32 in all that is used here.
Other releases get the nearest rules, and the answer says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from hybridctl.versions import VersionSet, parse_condition, parse_version

SOURCES = (
    "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/core/kv_cache_utils.py",
    "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/platforms/interface.py",
    "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/kv_cache_interface.py",
)
NEWEST = "0.33.0"
DEFAULT_UTILIZATION = 0.92


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a release."""

    version: str
    measured: bool
    """Compared with what that release itself computes."""
    known: bool
    """Within the releases that were at least read."""
    all_mode: bool
    """``--mamba-cache-mode all`` exists: a state at every block."""
    checkpoints: bool
    """Mamba-2 layers keep one more state block in ``align`` mode, to save a state inside a prefill."""
    utilization: float = DEFAULT_UTILIZATION
    """``--gpu-memory-utilization`` when not given."""
    ple: str = "host"
    """Where Qwen4Exp's table lies unless told otherwise: gpu or host."""


def rules_for(version: str = NEWEST) -> Rules:
    """The rules of that release; the newest known ones for a version that can't be read."""
    read: VersionSet | None = parse_version(version)
    older = read is not None and read.within(parse_condition("<0.31.dev0")) is True
    known = read is not None and read.within(parse_condition(">=0.30.dev0,<0.34.dev0")) is True
    measured = read is not None and (
        read.within(parse_condition("==0.30.0")) is True or read.within(parse_condition("==0.32.0")) is True
    )
    gpu_table = read is not None and read.within(parse_condition("<0.30.dev0")) is True
    return Rules(
        version,
        measured,
        known,
        all_mode=read is not None and read.within(parse_condition("<0.32.dev0")) is True,
        checkpoints=not older,
        ple="gpu" if gpu_table else "host",
    )


def batch_defaults(memory_gib: float | None, name: str = "") -> tuple[int, int]:
    """``(max_num_batched_tokens, max_num_seqs)`` of ``vllm serve`` when neither is given.

    By the memory that the driver reports (``EngineArgs.get_batch_defaults``, the same in 0.30 and 0.32); A100 counts as small.
    """
    if memory_gib is not None and memory_gib >= 160:
        return 16384, 1024
    if memory_gib is not None and memory_gib >= 70 and "a100" not in name.lower():
        return 8192, 1024
    return 2048, 256
