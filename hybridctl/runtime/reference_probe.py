"""The reference model, in a process of its own: it needs torch and transformers, and where they are missing that is said."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hybridctl.errors import HybridctlError
from hybridctl.runtime.checkpoint import Checkpoint

SCORE = "hybridctl.kernels.linear_attention.score"
GIB = 1 << 30
COPIES = 5
"""Tables of scores [heads, tokens, tokens] that are alive at once, as float32; for the demo model it was about three."""
PER_PAIR = 512
"""Floating-point operations for one head and one pair of tokens: both kernels, scores and values, at a head size of 64."""
MOST_WORK = 2e13
"""Floating-point operations: sixteen times what the demo's text takes by default."""


class NoReferenceError(HybridctlError):
    """The reference gives no answer."""


def missing(checkpoint: Checkpoint, lengths: Sequence[int] = ()) -> str:
    """Why the reference can't run a checkpoint here; empty where nothing is known to stand against it.

    Args:
        lengths: tokens of each pass that it would make.
    """
    absent = [name for name in ("torch", "transformers", "safetensors") if importlib.util.find_spec(name) is None]
    if absent:
        return f"{' and '.join(absent)} not installed in {sys.executable}"
    if checkpoint.folder is None:
        return "the checkpoint's files are not at hand"
    text = checkpoint.config.get("text_config")
    inner: Mapping[str, Any] = text if isinstance(text, dict) else checkpoint.config
    layers, heads = (int(inner.get(name) or 0) for name in ("num_hidden_layers", "num_attention_heads"))
    weights, longest = sum(f.stat().st_size for f in checkpoint.folder.glob("*.safetensors")), max(lengths, default=0)
    # Half precision becomes float32, and is read whole before it is copied; scores are kept for all pairs of tokens.
    needed, free = 3 * weights + COPIES * 4 * heads * longest**2, _free()
    if free is not None and needed > free:
        return f"it would take {needed / GIB:.0f} GiB of memory, and {free / GIB:.0f} are free"
    work = sum(weights * n + layers * heads * n**2 * PER_PAIR for n in lengths)
    if work > MOST_WORK:
        return f"it would take {work / 1e12:.0f} TFLOP on the CPU; more than {MOST_WORK / 1e12:.0f} are not tried"
    return ""


def _free() -> int | None:
    """Bytes of memory that a process may take; None where that is not told."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) << 10 if found else None


def reference(
    folder: Path,
    sequences: Sequence[Sequence[int]],
    first: Sequence[int],
    configs: Sequence[Mapping[str, Any] | None],
    seconds: float = 1800.0,
) -> list[list[dict[str, list[Any]]]]:
    """The reference's rows for each configuration (see the module that scores).

    Raises:
        NoReferenceError: it fails.
    """
    document = {
        "model": str(folder),
        "sequences": list(map(list, sequences)),
        "first": list(first),
        "configs": list(configs),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", SCORE],
            input=json.dumps(document),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoReferenceError(f"the reference took longer than {seconds:g} s") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise NoReferenceError(f"the reference fails: {last[:300]}")
    rows: list[list[dict[str, list[Any]]]] = json.loads(done.stdout)
    return rows
