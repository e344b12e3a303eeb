"""Commands of hybridctl as a user waits for them: whole processes, one after the other. What benchmarks of such commands share."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WARM = 2
"""The first runs warm the disk's cache and the compiled knowledge; they are listed apart."""


def seconds(arguments: list[str], runs: int) -> tuple[list[float], str]:
    """Of each run; and what the last one printed.

    Raises:
        SystemExit: a run ended with another code than 0 and 1.
    """
    taken, out = [], ""
    for _ in range(runs):
        begin = time.monotonic()
        line = [sys.executable, "-m", "hybridctl", *arguments]
        done = subprocess.run(line, capture_output=True, cwd="/", check=False, text=True)
        taken.append(round(time.monotonic() - begin, 3))
        if done.returncode not in (0, 1):
            raise SystemExit(f"hybridctl {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
        out = done.stdout
    return taken, out


def machine() -> dict[str, Any]:
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def tell(row: dict[str, Any], out: Path | None) -> None:
    """Print a row, and add it to a file of rows."""
    sys.stdout.write(json.dumps(row, indent=1) + "\n")
    if out:
        rows = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
        body = ",\n".join(json.dumps(each) for each in [*rows, row])
        out.write_text(f"[\n{body}\n]\n", encoding="utf-8")
