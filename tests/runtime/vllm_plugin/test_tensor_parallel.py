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

import torch
from recording import Recorder, assert_replays
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


def run(model: Path, given: list[list[int]], folder: Path, tokens: int) -> list[Answer]:
    """Two rounds in two ranks; the masks of both ranks are left in ``folder``."""
    prompts, answers = folder / "prompts.json", folder / "answers.json"
    prompts.write_text(json.dumps(given), encoding="utf-8")
    script = Path(__file__).with_name("engine_process.py")
    env = {
        **os.environ,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0|1",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # functions are sent to the workers
    }
    done = subprocess.run(
        [sys.executable, str(script), str(model), str(prompts), str(answers), json.dumps(SETTINGS), str(tokens)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [Answer(**each) for each in json.loads(answers.read_text(encoding="utf-8"))]


def merged(file: Path, layers: int, groups: int) -> Recorder:
    """One recording of those of all ranks: each has seen its own KV groups."""
    made = Recorder(None, layers, groups)
    for known, masks, band in json.loads(file.read_text(encoding="utf-8")):
        made.known = known
        for name, (shape, where) in masks.items():
            mask = made.masks.setdefault(name, torch.zeros(shape, dtype=torch.bool))
            mask[tuple(torch.tensor(where, dtype=torch.long).view(-1, 3).T)] = True
        for kernel, counts in band.items():
            made.band[kernel] = [a + b for a, b in zip(made.band[kernel], counts, strict=True)]
    return made


def test_two_ranks(tiny: Callable[..., Path], reference: Callable[..., Any], plugin_on: Path, tmp_path: Path) -> None:
    model = tiny("qwen3", at(64))
    given = [p for seed in (1, 2, 3) for p in prompts_of((5, 63, 64, 65, 128, 200, 300), seed)]
    got = run(model, given, tmp_path, 50)
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


def test_two_ranks_with_groups_of_both_kinds_a_band_and_a_gate(
    tiny: Callable[..., Path], reference: Callable[..., Any], plugin_on: Path, tmp_path: Path
) -> None:
    """Each rank holds one linear and one flash group, and decides for its own."""
    config = {
        "thresholds": {"flash": 64, "linear": 200},
        "entropy_threshold": 0.9,
        "linear_head_ratio": 0.5,
        "linear_head_gate": [1],
        "linear_feature_size": 32,
    }
    model = tiny("qwen3", config, groups=4, heads=8)
    got = run(model, prompts_of((5, 63, 64, 65, 128, 190, 300), 1), tmp_path, 40)
    recorder = merged(tmp_path / "answers.masks", 3, 4)
    done = assert_replays(got, recorder, reference(model))
    assert done.decided > 1000
    assert min(min(counts) for counts in done.band.values()) > 50
    for other in ({}, {**config, "linear_heads": [0, 2], "linear_head_ratio": None}):
        other = {key: value for key, value in other.items() if value is not None}
        assert difference(got, reference(model, other)).mismatches >= 100
    proofs = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(plugin_on.glob("layers-*.json"))]
    held = [[layer["groups"] for layer in proof["layers"].values()] for proof in proofs]
    assert held == [[[1], [0]] * 3, [[3], [2]] * 3]
