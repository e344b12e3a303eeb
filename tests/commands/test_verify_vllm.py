"""``hybridctl verify MODEL`` in real vLLM: with and without the dispatcher, and a checkpoint not trained for its routing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import marked

from hybridctl.runtime.checkpoint import DEMO

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]
SMALL = ("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "8")


def verify(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    env = {
        **os.environ,
        "HYBRIDCTL_HOME": str(tmp_path / "home"),
        "MARK": tmp_path.name + "-verify",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",  # many times faster on a busy machine
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    env.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    line = [sys.executable, "-m", "hybridctl", "verify", "--windows", "2", "--json", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, env=env, check=False)
    assert done.stdout, done.stderr
    assert marked(env["MARK"]) == []
    assert list((tmp_path / "home" / "state" / "runs").iterdir()) == []
    return done.returncode, json.loads(done.stdout)


def test_the_demo_against_itself_without_the_dispatcher(tmp_path: Path) -> None:
    code, report = verify(tmp_path, "hybridctl-demo", "--against", "no-hybrid")
    assert (code, report["passed"], report["trained"]) == (0, True, True), report["verdict"]
    below, above = report["against"]["below"], report["against"]["above"]
    assert (below["different"], below["tokens"] > 100, below["worst"] < 1e-4) == (0, True, True)
    assert (above["different"] > 5, above["worst"] > 1) == (True, True)  # so the comparison could have failed
    plain, flash = (next(p for p in report["perplexity"] if p["routing"] == n) for n in ("--no-hybrid", "all flash"))
    assert plain["value"] == pytest.approx(flash["value"], rel=1e-3)  # vLLM and the reference
    assert plain["factor"][1] > 5
    assert report["fibonacci"]["other"] == report["fibonacci"]["answer"]  # it is short: nothing is linear


def test_thresholds_that_the_checkpoint_was_not_trained_for(tmp_path: Path) -> None:
    folder = tmp_path / "doubled"
    folder.mkdir()
    for file in DEMO.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((DEMO / "config.json").read_text())
    config["hybrid_config"]["thresholds"] = {"flash": 512, "linear": 1024}
    (folder / "config.json").write_text(json.dumps(config))
    code, report = verify(tmp_path, str(folder), "--", *SMALL)
    assert (code, report["trained"]) == (1, False), report["verdict"]
    assert report["verdict"][0] == "routing as configured"
    assert report["verdict"][1].startswith("matches the reference to ")
    assert report["verdict"][2].startswith("this checkpoint was not trained for this routing: perplexity rises from ")
    assert "(thresholds halved)" in report["verdict"][2]
