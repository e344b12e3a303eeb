"""Block size, pages, groups, blocks, tokens and concurrency are those that vLLM itself computes, to the last digit.

The truth was recorded by ``tests/data/fit/record.py``, which calls the functions that the engine calls while it starts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hybridctl.fit.blocks import CPU, CUDA
from hybridctl.fit.caches import Caches, Flags, caches
from hybridctl.fit.rules import rules_for
from hybridctl.model.config import read_config
from hybridctl.model.plan import LayerPlan, plan_layers

DATA = Path(__file__).parent.parent / "data" / "fit"
FAMILIES = json.loads((DATA / "families.json").read_text())
RECORDED = [json.loads(path.read_text()) for path in sorted(DATA.glob("vllm-*.json"))]
CASES = [(record["vllm"], case) for record in RECORDED for case in record["cases"]]
ENGINES = json.loads((DATA / "engine.json").read_text())
LATENT = ("kimi_linear", "bailing_v2_5")


def plan_of(family: str) -> LayerPlan:
    return plan_layers(read_config(FAMILIES[family]))


def ours(version: str, family: str, asked: dict[str, Any]) -> tuple[Caches, int]:
    asked = dict(asked)
    pool, drafts = asked.pop("pool"), asked.pop("mtp", 0)
    cuda = asked.pop("cuda", False) or family in LATENT
    flags = Flags(
        tensor_parallel_size=asked.pop("tp", 1),
        num_speculative_tokens=drafts,
        draft_layers=1 if drafts else 0,
        async_scheduling=False,  # the CPU's scheduler waits for each step
        **asked,
    )
    backend = None if family == "qwen4_exp" else CUDA if cuda else CPU
    return caches(plan_of(family), flags, rules_for(version), backend), pool


def test_enough_was_recorded() -> None:
    for record in RECORDED:
        assert len(record["cases"]) >= 140
        assert len({case["family"] for case in record["cases"]}) >= 16
    assert {record["vllm"] for record in RECORDED} >= {"0.30.0", "0.32.0"}


@pytest.mark.parametrize(("version", "case"), CASES, ids=[f"{v}-{c['family']}-{i}" for i, (v, c) in enumerate(CASES)])
def test_equal(version: str, case: dict[str, Any]) -> None:
    made, pool = ours(version, case["family"], case["asked"])
    got = case["got"]
    if "error" in got:
        assert not made.fits(pool)
        longest = re.search(r"estimated maximum model length is (\d+)", got["error"])
        assert longest and made.longest(pool) == int(longest[1])
        return
    groups = sorted((g.first.block, len(g.specs), sorted({s.page for s in g.specs})) for g in made.grouping.groups)
    assert groups == sorted((g["block_size"], g["layers"], g["page"]) for g in got["groups"])
    assert made.block_size == got["block_size"]
    assert made.blocks(pool) == got["num_blocks"]
    assert made.concurrency(pool) == got["concurrency"]
    assert made.tokens(pool) == got["tokens"]
    assert made.fits(pool)
    if plan_of(case["family"]).hybrid:
        assert made.mode == got["mode"]
        assert sorted({s.content for g in made.grouping.groups for s in g.specs if s.kind == "state"}) == got["state"]


@pytest.mark.parametrize("case", ENGINES, ids=[f"{c['vllm']}-{c['family']}" for c in ENGINES])
def test_whole_engines_say_the_same(case: dict[str, Any]) -> None:
    """The short way of the recorder is the engine's way: what started engines logged is what was recorded, and what we say."""
    short = [
        c["got"] for v, c in CASES if v == case["vllm"] and (c["family"], c["asked"]) == (case["family"], case["asked"])
    ]
    for field in ("num_blocks", "groups", "concurrency", "tokens", "padded", "mode", "state"):
        assert short[0][field] == case["got"][field], field
    made, pool = ours(case["vllm"], case["family"], case["asked"])
    assert [made.tokens(pool), made.concurrency(pool)] == case["got"]["logged"]


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in (*LATENT, "qwen4_exp")])
def test_layers_are_those_that_vllm_builds(family: str) -> None:
    case = next(c for _, c in CASES if c["family"] == family and "kinds" in c["got"] and "mtp" not in c["asked"])
    plan, built = plan_of(family), case["got"]["kinds"].split()
    ours = [part for layer in plan.layers for part in layer.parts]
    if family == "zamba2":  # vLLM registers its shared attention blocks before the layers
        ours, built = sorted(ours), sorted(built)
    assert ours == built


BUILT = {row["family"]: row for row in map(json.loads, (DATA / "layers.jsonl").read_text().splitlines())}
KINDS = {
    "QwenGatedDeltaNetAttention": "gdn",
    "Qwen4ExpQSAAttention": "sparse",
    "KimiGatedDeltaNetAttention": "kda",
    "MultiHeadLatentAttention": "full",
}


@pytest.mark.parametrize("family", ["qwen4_exp", "kimi_linear"])
def test_layers_that_are_not_built_on_a_plain_cpu(family: str) -> None:
    """Qwen4Exp's were built on an H200, Kimi-Linear's on a CPU with stand-ins for CUDA's streams."""
    built = [KINDS[cls] for _, cls, _, _ in BUILT[family]["built"] if cls in KINDS]
    assert built == [part for layer in plan_of(family).layers for part in layer.parts]


@pytest.mark.vllm
@pytest.mark.slow
def test_record_again() -> None:
    """What is recorded is what the installed vLLM computes."""
    vllm = pytest.importorskip("vllm")
    recorded = next((r for r in RECORDED if r["vllm"] == vllm.__version__), None)
    if recorded is None:
        pytest.skip(f"nothing was recorded of vLLM {vllm.__version__}")
    families = ("qwen3_next", "falcon_h1")
    run = subprocess.run(
        [sys.executable, str(DATA / "record.py"), "short", *families],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    known = [case for family in families for case in recorded["cases"] if case["family"] == family]
    assert json.loads(run.stdout)["cases"] == known
