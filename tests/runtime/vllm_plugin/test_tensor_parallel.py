"""Two tensor-parallel ranks answer as the reference does, and each proves its part."""

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

from vllm_harness import Answer, assert_same, difference, prompts_of

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
SETTINGS = {
    "tensor_parallel_size": 2,
    "distributed_executor_backend": "mp",
    "dtype": "float32",
    "max_model_len": 512,
    "enforce_eager": True,
    "max_num_seqs": 24,
    "max_num_batched_tokens": 160,
    "enable_prefix_caching": True,
    "block_size": 32,
    "kv_cache_memory_bytes": 1 << 26,
}


def at(threshold: int) -> dict[str, Any]:
    return {"thresholds": {"flash": threshold, "linear": threshold}, "linear_feature_size": 32}


def test_two_ranks(tiny: Callable[..., Path], reference: Callable[..., Any], plugin_on: Path, tmp_path: Path) -> None:
    model = tiny("qwen3", at(64))
    prompts, answers = tmp_path / "prompts.json", tmp_path / "answers.json"
    given = [p for seed in (1, 2, 3) for p in prompts_of((5, 63, 64, 65, 128, 200, 300), seed)]
    prompts.write_text(json.dumps(given), encoding="utf-8")
    script = Path(__file__).with_name("engine_process.py")
    env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    done = subprocess.run(
        [sys.executable, str(script), str(model), str(prompts), str(answers), json.dumps(SETTINGS), "50"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    got = [Answer(**each) for each in json.loads(answers.read_text(encoding="utf-8"))]
    found = assert_same(got, reference(model))
    assert found.tokens >= 2000
    assert found.distinct >= 200
    for config in ({}, at(48), at(80)):
        assert difference(got[: len(given)], reference(model, config)).mismatches >= 100, config
    assert all(each.cached > 64 for each in got[len(given) :] if len(each.prompt) > 160)  # warm, past T_l
    proofs = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(plugin_on.glob("layers-*.json"))]
    assert [(p["rank"], p["tp_rank"], p["tp_size"], len(p["layers"])) for p in proofs] == [(0, 0, 2, 3), (1, 1, 2, 3)]
    assert len({p["pid"] for p in proofs}) == 2
    registered = [json.loads(p.read_text(encoding="utf-8")) for p in plugin_on.glob("registered-*.json")]
    assert {p["pid"] for p in proofs} <= {p["pid"] for p in registered}
