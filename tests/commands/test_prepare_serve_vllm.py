"""prepare, then serve, in the installed vLLM: the demo model without its routing, routed by --routing FILE."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from fake_vllm import serving

from hybridctl.runtime.checkpoint import DEMO

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM")
def test_a_routing_from_a_file_is_served(tmp_path: Path) -> None:
    model = tmp_path / "plain"
    shutil.copytree(DEMO, model)
    config = json.loads((model / "config.json").read_text())
    block = config.pop("hybrid_config")
    (model / "config.json").write_text(json.dumps(config, indent=2))
    (tmp_path / "block.json").write_text(json.dumps(block))
    environ = {**os.environ, "HYBRIDCTL_HOME": str(tmp_path / "home")}
    argv = [sys.executable, "-m", "hybridctl", "prepare", str(model), "--routing", str(tmp_path / "block.json")]
    made = subprocess.run(
        [*argv, "--max-model-len", "1024", "--json"], capture_output=True, text=True, env=environ, check=False
    )
    assert made.returncode == 0, made.stderr
    overlay = json.loads(made.stdout)["folder"]
    with serving(
        tmp_path,
        *(overlay, "--json", "--dtype", "float32", "--", "--enforce-eager", "--max-num-seqs", "4"),
        python=Path(sys.executable),
        VLLM_CPU_KVCACHE_SPACE="1",
    ) as server:
        server.when(lambda: server.out.endswith("\n}\n"), 400)
        ready = json.loads(server.out)
        assert (ready["injected"], ready["layers"], ready["model"]) == (True, 4, str(model))
        with urllib.request.urlopen(f"{ready['url']}/v1/models", timeout=60) as answer:
            assert json.loads(answer.read())["data"][0]["max_model_len"] == 1024  # the stored flag
        asked = {"model": str(model), "prompt": "def f(x):\n    return x\n" * 40, "max_tokens": 8, "temperature": 0}
        request = urllib.request.Request(
            f"{ready['url']}/v1/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            used = json.loads(answer.read())["usage"]["prompt_tokens"]
        assert used > block["thresholds"]["linear"]
        with urllib.request.urlopen(f"{ready['url']}/metrics", timeout=60) as answer:
            lines = [line for line in answer.read().decode().splitlines() if line.startswith("hybridctl_")]
        for kernel in ("flash", "linear"):
            assert any(kernel in line and float(line.split()[-1]) > 0 for line in lines), lines
        assert server.end(signal.SIGTERM, 60) == 0
