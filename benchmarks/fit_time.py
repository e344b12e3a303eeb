"""Seconds that ``hybridctl fit`` takes for three config.json files, as a user waits for it: whole processes, one after the other.

    python benchmarks/fit_time.py --out benchmarks/results/fit_time.json

Install hybridctl first (byte-compiled, as pip does it), without torch. The files are tests/data/fit/families.json's, of the sizes
that were published; there are no weights beside them, so the answer covers caches alone. The first run of each is listed apart.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FAMILIES = Path(__file__).parents[1] / "tests" / "data" / "fit" / "families.json"
MODELS = {
    "Qwen3.8-Flash-Next": ("qwen4_exp", "4"),
    "Qwen3.6-27B": ("qwen3_5_27b", "1"),
    "Qwen3-Next-80B": ("qwen3_next_80b", "2"),
}


def seconds(folder: Path, tp: str, runs: int) -> list[float]:
    taken = []
    for _ in range(runs):
        begin = time.monotonic()
        line = [sys.executable, "-m", "hybridctl", "fit", str(folder), "--gpu", "H200", "--tp", tp, "--json"]
        done = subprocess.run(line, capture_output=True, text=True, cwd="/", check=False)
        taken.append(round(time.monotonic() - begin, 3))
        if done.returncode not in (0, 1):
            raise SystemExit(f"hybridctl fit ended with {done.returncode}: {done.stderr}")
        json.loads(done.stdout)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    configs = json.loads(FAMILIES.read_text(encoding="utf-8"))
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (family, tp) in MODELS.items():
            model = Path(folder) / name
            model.mkdir()
            (model / "config.json").write_text(json.dumps(configs[family]), encoding="utf-8")
            first, *taken = seconds(model, tp, options.runs)
            rows[name] = {"tp": int(tp), "median_s": statistics.median(taken), "first_s": first, "fit_s": taken}
    result = {
        "cpus": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "torch": find_spec("torch") is not None,
        "models": rows,
    }
    text = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
