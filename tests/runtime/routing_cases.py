"""Configurations that several tests route by, and strategies for engine steps."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hybridctl.runtime.dispatcher import HybridAttentionDispatcher
from hybridctl.runtime.hybrid_config import ModelShape, parse

LAYERS, HEADS = 3, 4
SHAPE = ModelShape(LAYERS, HEADS, 64)

ARTICLE: dict[str, Any] = {
    "routing_strategy": "sequence_length",
    "thresholds": {"flash": 2048, "linear": 4096},
    "fallback_policy": "entropy_based",
    "linear_head_ratio": 0.5,
}
ARTICLE_UNITS: list[dict[str, str]] = [
    {"name": "flash_unit", "kernel": "flash_attn", "layout": "contiguous", "condition": "seqlen < 2048"},
    {"name": "linear_unit", "kernel": "linear_attn", "layout": "compressed", "condition": "seqlen >= 4096"},
    {
        "name": "entropy_unit",
        "kernel": "flash_attn",
        "layout": "contiguous",
        "condition": "2048 <= seqlen < 4096 and entropy > 0.8",
    },
]


def units(*lines: tuple[str, str], **more: Any) -> dict[str, Any]:
    """A compute_units block from (kernel, condition) pairs."""
    made = [{"name": f"u{i}", "kernel": kernel, "condition": condition} for i, (kernel, condition) in enumerate(lines)]
    return {"compute_units": made, **more}


# Small thresholds, so that random rows meet all of them.
ROUTINGS: dict[str, dict[str, Any]] = {
    "no band": {"thresholds": {"flash": 70, "linear": 70}},
    "band": {"thresholds": {"flash": 64, "linear": 130}, "linear_head_ratio": 0.5},
    "band for ever": {"thresholds": {"flash": 80, "linear": None}, "linear_heads": [[0], [1, 3], []]},
    "always linear": {"thresholds": {"flash": 0, "linear": 0}},
    "never linear": {"thresholds": {"flash": 9, "linear": None}, "fallback_policy": "flash"},
    "layer types": {
        "layer_types": ["linear_attention", "full_attention", "hybrid_attention"],
        "thresholds": {"flash": 64, "linear": 100},
    },
    "back to flash": units(
        ("flash_attn", "seqlen < 40 or position in [90, 91] or seqlen > 200"), ("linear_attn", "not (seqlen < 40)")
    ),
    "by layer and head": units(
        ("linear", "layer == 1 and head % 2 == 1 and position >= 33"),
        ("flash", "layer in [0, 2] and seqlen >= 64 and entropy >= 0.5"),
        ("linear", "layer == 2 and seqlen >= 64"),
        default_unit="flash",
    ),
}


def dispatcher(block: dict[str, Any], **more: Any) -> HybridAttentionDispatcher:
    return HybridAttentionDispatcher(parse({**block, **more}, SHAPE), LAYERS, HEADS)


# Rows as (tokens computed before, query tokens of this step).
# Half of the ends lie at a cut of the routings above.
ends = st.integers(0, 260) | st.sampled_from([0, 9, 33, 40, 64, 70, 80, 90, 91, 92, 100, 130, 201])
rows_of_a_step = st.lists(
    st.tuples(ends, ends).map(sorted).map(lambda pair: (pair[0], pair[1] - pair[0])), min_size=0, max_size=24
)


def lengths(rows: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """query_start_loc and seq_lens of rows."""
    starts = [0]
    for _, count in rows:
        starts.append(starts[-1] + count)
    return starts, [before + count for before, count in rows]
