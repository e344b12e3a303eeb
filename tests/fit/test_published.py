"""Figures that people and start logs have published, and what they follow from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hybridctl.fit.caches import Caches, Flags, caches
from hybridctl.fit.rules import rules_for
from hybridctl.model.config import read_config
from hybridctl.model.plan import plan_layers

DATA = Path(__file__).parent.parent / "data" / "fit"
PUBLISHED: dict[str, Any] = json.loads((DATA / "published.json").read_text())
FAMILIES = json.loads((DATA / "families.json").read_text()) | PUBLISHED["models"]
FIGURES: list[dict[str, Any]] = PUBLISHED["figures"]
SETTINGS = {"tp", "mtp", "kv", "ssm", "length", "prefix"}


def made(
    family: str,
    tp: int = 1,
    mtp: int = 0,
    kv: str = "auto",
    ssm: str = "auto",
    length: int = 262144,
    prefix: bool = True,
) -> Caches:
    flags = Flags(
        length,
        8192,
        tensor_parallel_size=tp,
        num_speculative_tokens=mtp,
        draft_layers=1 if mtp else 0,
        kv_cache_dtype=kv,
        mamba_ssm_cache_dtype=ssm,
        enable_prefix_caching=prefix,
    )
    return caches(plan_layers(read_config(FAMILIES[family])), flags, rules_for("0.33.0"))


@pytest.mark.parametrize(
    ("family", "tp", "mtp", "kv", "ssm", "block"),
    [
        ("qwen3_next_80b", 1, 0, "auto", "auto", 544),
        ("qwen3_5_27b", 1, 0, "auto", "auto", 784),
        ("qwen3_5_27b", 1, 0, "fp8", "auto", 1568),
        ("qwen4_exp", 1, 0, "auto", "auto", 1568),
        ("qwen4_exp", 2, 3, "auto", "auto", 1600),
        ("qwen4_exp", 2, 3, "fp8", "bfloat16", 1664),
        ("qwen4_exp", 4, 3, "auto", "auto", 800),
        ("qwen4_exp", 8, 0, "auto", "auto", 400),
    ],
)
def test_block_sizes(family: str, tp: int, mtp: int, kv: str, ssm: str, block: int) -> None:
    assert made(family, tp, mtp, kv, ssm).block_size == block


def test_the_setting_behind_a_reported_padding() -> None:
    """Block 1600 padded by 0.88 % (https://github.com/vllm-project/vllm/issues/54458): two drafts, on one rank or two."""
    settings = [
        (tp, mtp)
        for tp in (1, 2, 4, 8)
        for mtp in range(9)
        if (a := made("qwen4_exp", tp, mtp).alignment) and a.block == 1600 and round(100 * a.padding, 2) == 0.88
    ]
    assert settings == [(1, 2), (2, 2)]


def test_a_full_context_of_the_27b_takes_sixteen_gib_of_keys_and_values() -> None:
    answer = made("qwen3_5_27b")
    assert answer.token_bytes * 262144 == 16 * 2**30
    assert 16 * 2**30 < answer.need(262144) < 16.5 * 2**30  # whole blocks, and the states


def test_states_of_flash_next() -> None:
    """110 MiB a set on one rank, 112 with three drafts (the rings and windows of the side caches not counted), 5 sets."""
    plain, drafts = made("qwen4_exp"), made("qwen4_exp", mtp=3)
    ple = (plain.grouping.groups[-1].first.content, drafts.grouping.groups[-1].first.content)
    assert round((plain.state_bytes - ple[0]) / 2**20) == 110
    assert round((drafts.state_bytes - ple[1]) / 2**20) == 112
    assert drafts.state_sets == 5
    assert made("qwen4_exp").token_bytes == 24576 + 12 * 64  # main caches, and a compressed key for every four tokens


def test_a_reported_concurrency() -> None:
    """4 x RTX 4090, TP 4, two pipeline stages: 10.35 GiB of pool gave 6.40 x 262,144 tokens (wtdcode/vllm-backport issue 36).

    Each stage holds half of the layers, so a block of the pool is half as large as on one stage.
    """
    answer = made("qwen4_exp", tp=4)
    blocks = int(10.35 * 2**30) // (answer.grouping.block_bytes // 2)
    assert blocks / answer.grouping.blocks(262144, answer.launch) == pytest.approx(6.40, rel=0.02)


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: f"{row['model']}-{row['source'].rpartition('/')[2]}")
def test_figures_of_start_logs_that_others_published(row: dict[str, Any]) -> None:
    """``tests/data/fit/published.json``: each with its address. A log's tokens follow from a whole number of blocks, or not at all.

    A pool in GiB was printed with two digits, so the blocks that it is cut into are known to one or two.
    """
    assert row["source"].startswith("https://")
    answer = made(row["model"], **{key: row[key] for key in SETTINGS & set(row)})
    a_request = answer.grouping.blocks(answer.flags.max_model_len, answer.launch)
    if "block" in row:
        assert answer.block_size == row["block"]
    if "padding" in row:
        assert answer.alignment
        assert round(100 * answer.alignment.padding, 2) == row["padding"]
    if {"tokens", "concurrency", "blocks"} & set(row):
        blocks = row.get("blocks") or round(row["tokens"] * a_request / row["length"])
        if "tokens" in row:
            assert int(blocks / a_request * row["length"]) == row["tokens"]
        if "concurrency" in row:
            assert round(blocks / a_request, 2) == row["concurrency"]
        if "pool_gib" in row:
            assert blocks * answer.grouping.block_bytes / 2**30 == pytest.approx(row["pool_gib"], abs=0.03)
