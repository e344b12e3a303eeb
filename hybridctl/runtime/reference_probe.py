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

SCORE = "hybridctl.kernels.linear_attention.score"
GIB = 1 << 30


class NoReferenceError(HybridctlError):
    """The reference gives no answer."""


def missing(folder: Path) -> str:
    """Why the reference can't run a checkpoint here; empty where nothing is known to stand against it."""
    absent = [name for name in ("torch", "transformers", "safetensors") if importlib.util.find_spec(name) is None]
    if absent:
        return f"{' and '.join(absent)} not installed in {sys.executable}"
    # Half precision becomes float32, and is read whole before it is copied.
    needed, free = 3 * sum(f.stat().st_size for f in folder.glob("*.safetensors")), _free()
    if free is not None and needed > free:
        return f"its weights take {needed / GIB:.0f} GiB in float32, and {free / GIB:.0f} GiB of memory are free"
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
