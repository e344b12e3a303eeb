"""Seconds that ``hybridctl fit`` takes on this machine, as a user waits for it: whole processes, one after the other.

    python benchmarks/fit_time.py --runs 12 --out benchmarks/results/fit_time.json

The models are the full-size configurations of ``tests/data/fit/families.json``, each in a folder without weights. Run it with a
Python that has hybridctl installed (byte-compiled, as pip does it) and no torch. The first two runs warm the disk's cache and are
listed apart. Every call adds a row to the file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from waited_for import WARM, machine, seconds, tell

import hybridctl

CONFIGS = Path(__file__).parents[1] / "tests/data/fit/families.json"
MODELS = {"Qwen3.8-Flash-Next": "qwen4_exp", "Qwen3.6-27B": "qwen3_5_27b", "Qwen3-Next-80B": "qwen3_next_80b"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--machine", default="", help="name it")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    configs = json.loads(CONFIGS.read_text(encoding="utf-8"))
    row: dict[str, Any] = {
        "machine": options.machine,
        **machine(),
        "installed": "site-packages" in Path(hybridctl.__file__).parts,
        "torch": find_spec("torch") is not None,
        "models": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, key in MODELS.items():
            model = Path(folder, name)
            model.mkdir()
            (model / "config.json").write_text(json.dumps(configs[key]), encoding="utf-8")
            asked = ["fit", str(model), "--gpu", "H200", "--vllm", "0.32.0", "--json"]
            taken, out = seconds(asked, options.runs)
            row["models"][name] = {
                "verdict": json.loads(out)["verdict"],
                "median_s": round(statistics.median(taken[WARM:]), 3),
                "first_s": taken[:WARM],
                "fit_s": taken[WARM:],
            }
    tell(row, options.out)


if __name__ == "__main__":
    main()
