"""Time of one planned engine step, with and without numpy.

    python benchmarks/plan_step.py --out benchmarks/results/plan_step.json

Rows decode one token each at lengths spread over the ranges of the routing (or all below its first cut: "short"), or one row in
eight carries a 512-token chunk of a prompt. Median and 99th percentile of 300 steps, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from hybridctl.runtime import step_plan
from hybridctl.runtime.dispatcher import HybridAttentionDispatcher
from hybridctl.runtime.hybrid_config import ModelShape, parse

LAYERS, GROUPS, STEPS = 36, 8, 300
ROUTINGS: dict[str, dict[str, Any]] = {
    "r=1, no band": {"thresholds": {"flash": 2048, "linear": 2048}},
    "r=0.5, band": {"thresholds": {"flash": 2048, "linear": 4096}, "linear_head_ratio": 0.5},
}


def lengths(kind: str, rows: int, source: random.Random) -> tuple[list[int], list[int]]:
    starts, lens = [0], []
    for row in range(rows):
        count = 512 if kind == "mixed" and row % 8 == 0 else 1
        starts.append(starts[-1] + count)
        lens.append(count + source.randrange(0, 1500 if kind == "short" else 9000))
    return starts, lens


def measure(made: HybridAttentionDispatcher, kind: str, rows: int) -> dict[str, float]:
    source = random.Random(rows)
    steps = [lengths(kind, rows, source) for _ in range(STEPS)]
    if step_plan.load_numpy() and rows >= step_plan.NUMPY_FROM:  # as the engine has them: arrays
        np = step_plan.load_numpy()
        steps = [(np.asarray(a, dtype=np.int32), np.asarray(b, dtype=np.int32)) for a, b in steps]
    made.plan_step(*steps[0])
    taken = []
    for starts, lens in steps:
        begin = time.perf_counter()
        made.plan_step(starts, lens)
        taken.append((time.perf_counter() - begin) * 1e6)
    taken.sort()
    return {"median_us": round(statistics.median(taken), 1), "p99_us": round(taken[int(len(taken) * 0.99)], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    numpy, threshold = step_plan.load_numpy(), step_plan.NUMPY_FROM
    runs = []
    for way in ("python", *(["numpy"] if numpy else [])):
        step_plan.NUMPY_FROM = 1 if way == "numpy" else 10**9
        for name, block in ROUTINGS.items():
            made = HybridAttentionDispatcher(parse(block, ModelShape(LAYERS, GROUPS, 128)), LAYERS, GROUPS)
            for kind in ("short", "decode", "mixed"):
                for rows in (1, 8, 16, 32, 64, 512):
                    runs.append({"way": way, "routing": name, "step": kind, "rows": rows, **measure(made, kind, rows)})
    result = {
        "benchmark": "plan_step",
        "python": platform.python_version(),
        "numpy": numpy and numpy.__version__,
        "numpy_from_rows": threshold,
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "runs": runs,
    }
    text = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
