"""A model without routing is served to the last bit as by a vLLM that does not have the plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

# How the plugin is there: named and switched on; installed only.
WAYS: dict[str, dict[str, str]] = {
    "on": {"VLLM_PLUGINS": "hybridctl", "HYBRIDCTL_PLUGIN": "1"},
    "installed": {},
}


def run(out: Path, models: list[Path], way: dict[str, str]) -> Any:
    env = {k: v for k, v in os.environ.items() if k not in ("VLLM_PLUGINS", "HYBRIDCTL_PLUGIN")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("plain_process.py")), str(out), *map(str, models)],
        env={**env, **way},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(out.read_text(encoding="utf-8"))


def test_a_model_without_routing_is_left_alone(tiny: Callable[..., Path], plugin_on: Path, tmp_path: Path) -> None:
    models = [tiny(family, None, routed=False) for family in ("qwen3", "llama")]
    without = run(tmp_path / "without.json", models, {"VLLM_PLUGINS": ""})
    assert without["plugin"] == []
    assert not plugin_on.exists()  # nobody registered
    for name, model in without["models"].items():
        assert {len(tokens) for tokens in model["tokens"]} == {32}, name
        assert len({token for tokens in model["tokens"] for token in tokens}) > 20
        assert {layer[-1] for layer in model["layers"].values()} == {"CPU_ATTN"}
        assert model["hybrid"] is False
    for name, way in WAYS.items():
        got = run(tmp_path / "with.json", models, way)
        registered = "hybridctl.runtime.vllm_plugin.config_hook" in got["plugin"]
        assert registered is ("HYBRIDCTL_PLUGIN" in way)
        assert "hybridctl.runtime.vllm_plugin.plugin" in got["plugin"]
        for model, answers in without["models"].items():
            for what, expected in answers.items():
                assert got["models"][model][what] == expected, (name, model, what)
    assert list(plugin_on.glob("registered-*.json"))
    assert list(plugin_on.glob("layers-*.json")) == []
