"""Seconds that ``hybridctl doctor`` takes on this machine, as a user waits for it: whole processes, one after the other.

    python benchmarks/doctor_time.py --runs 14 --out benchmarks/results/doctor_time.json

Install hybridctl first (byte-compiled, as pip does it). The first two runs warm the disk's cache and the compiled knowledge and are
listed apart. Every call adds a row to the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

WARM = 2


def seconds(arguments: list[str], runs: int) -> tuple[list[float], int]:
    """Of each run; and the last exit code."""
    taken, code = [], 0
    for _ in range(runs):
        begin = time.monotonic()
        line = [sys.executable, "-m", "hybridctl", *arguments]
        code = subprocess.run(line, capture_output=True, cwd="/", check=False).returncode
        taken.append(round(time.monotonic() - begin, 3))
    return taken, code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=14)
    parser.add_argument("--gpu", default="", help="name it: nothing here asks the driver")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    doctor, code = seconds(["doctor"], options.runs)
    if code not in (0, 1):
        raise SystemExit(f"hybridctl doctor ended with {code}")
    row: dict[str, Any] = {
        "gpu": options.gpu,
        "cpus": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "vllm": find_spec("vllm") is not None,
        "median_s": statistics.median(doctor[WARM:]),
        "first_s": doctor[:WARM],
        "doctor_s": doctor[WARM:],
        "help_s": seconds(["--help"], 5)[0],
    }
    sys.stdout.write(json.dumps(row, indent=1) + "\n")
    if options.out:
        rows = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
        body = ",\n".join(json.dumps(each) for each in [*rows, row])
        options.out.write_text(f"[\n{body}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
