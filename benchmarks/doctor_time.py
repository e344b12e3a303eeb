"""Seconds that ``hybridctl doctor`` takes on this machine, as a user waits for it: whole processes, one after the other.

    python benchmarks/doctor_time.py --runs 14 --out benchmarks/results/doctor_time.json

Install hybridctl first (byte-compiled, as pip does it). The first two runs warm the disk's cache and the compiled knowledge and are
listed apart. Every call adds a row to the file.
"""

from __future__ import annotations

import argparse
import statistics
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from waited_for import WARM, machine, seconds, tell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=14)
    parser.add_argument("--gpu", default="", help="name it: nothing here asks the driver")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    doctor, _ = seconds(["doctor"], options.runs)
    row: dict[str, Any] = {
        "gpu": options.gpu,
        **machine(),
        "vllm": find_spec("vllm") is not None,
        "median_s": statistics.median(doctor[WARM:]),
        "first_s": doctor[:WARM],
        "doctor_s": doctor[WARM:],
        "help_s": seconds(["--help"], 5)[0],
    }
    tell(row, options.out)


if __name__ == "__main__":
    main()
