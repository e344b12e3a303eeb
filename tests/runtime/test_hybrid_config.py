"""hybrid_config: the article's block and units as they stand, every refusal with path and range, no other exception."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_cases import ARTICLE, ARTICLE_UNITS, HEADS, LAYERS, ROUTINGS, SHAPE, units

from hybridctl.errors import HybridctlError
from hybridctl.runtime.hybrid_config import FIELDS, ConfigError, ModelShape, parse, spread_heads

QWEN = ModelShape(36, 8, 128)


def test_the_articles_block() -> None:
    config = parse(ARTICLE, QWEN)
    table = config.table(36, 8)
    assert [str(table.at(0, h)) for h in range(2)] == [
        "0– flash",
        "0–2047 flash, 2048–4095 by entropy (> 0.8: flash, else linear), 4096– linear",
    ]
    assert table.index == ((0, 1) * 4,) * 36
    assert config.route_by == "position" and config.batch_policy == "per_row" and not config.warnings


def test_the_articles_units_fill_their_hole_with_linear_and_say_so() -> None:
    config = parse({"routing_strategy": "compute_units", "compute_units": ARTICLE_UNITS}, QWEN)
    same = parse({**ARTICLE, "linear_head_ratio": 1.0}, QWEN)
    assert config.table(36, 8).partitions == same.table(36, 8).partitions
    assert config.warnings == ("hole at 2048–4095 with entropy <= 0.8: linear computes it (no unit covers it)",)
    with_default = parse({"compute_units": ARTICLE_UNITS, "default_unit": "flash_unit"}, QWEN)
    assert str(with_default.table(36, 8).partitions[0]) == "0–4095 flash, 4096– linear"
    assert with_default.warnings == ("hole at 2048–4095 with entropy <= 0.8: flash computes it (default_unit)",)


@pytest.mark.parametrize(
    ("block", "path", "says"),
    [
        ([], "", "a list of 0; allowed: a table"),
        ({"treshold": 1}, "", "'treshold' (did you mean thresholds?)"),
        ({"thresholds": {"flash": 1, "linear": 2}, "entropy": 1, "zzz": 2}, "", "'zzz'; allowed: routing_strategy"),
        ({}, "routing_strategy", "missing; allowed: sequence_length, layer_types, compute_units"),
        ({"routing_strategy": "sequence"}, "routing_strategy", "'sequence' (did you mean sequence_length?)"),
        ({"routing_strategy": "sequence_length"}, "thresholds", "missing"),
        ({"thresholds": 5}, "thresholds", "is 5; allowed: a table"),
        ({"thresholds": {"flash": 64}}, "thresholds.linear", "missing; allowed: 64 to"),
        ({"thresholds": {"flash": 64, "liner": 2}}, "thresholds", "did you mean linear?"),
        ({"thresholds": {"flash": -1, "linear": 2}}, "thresholds.flash", "is -1; allowed: a whole number from 0 to"),
        ({"thresholds": {"flash": True, "linear": 2}}, "thresholds.flash", "is true"),
        (
            {"thresholds": {"flash": 4096, "linear": 2048}},
            "thresholds.linear",
            "is 2048; allowed: a whole number from 4096",
        ),
        ({"thresholds": {"flash": 63, "linear": 64}}, "thresholds.flash", "allowed: 64 to"),
        ({"thresholds": {"flash": 64, "linear": 90}, "fallback_policy": "none"}, "fallback_policy", "entropy_based"),
        (
            {"thresholds": {"flash": 64, "linear": 90}, "entropy_threshold": 1.5},
            "entropy_threshold",
            "1.5; allowed: 0 to 1",
        ),
        (
            {"thresholds": {"flash": 64, "linear": 90}, "entropy_threshold": float("nan")},
            "entropy_threshold",
            "nan; allowed: 0 to 1",
        ),
        (
            {"thresholds": {"flash": 1, "linear": 1}, "linear_head_ratio": 2},
            "linear_head_ratio",
            "is 2; allowed: 0 to 1",
        ),
        (
            {"thresholds": {"flash": 1, "linear": 1}, "linear_head_ratio": 1, "linear_heads": [1]},
            "linear_head_ratio",
            "contradicts linear_heads",
        ),
        ({"thresholds": {"flash": 1, "linear": 1}, "linear_heads": [4]}, "linear_heads[0]", "0 to 3"),
        ({"thresholds": {"flash": 1, "linear": 1}, "linear_heads": [1, 1]}, "linear_heads", "twice"),
        ({"thresholds": {"flash": 1, "linear": 1}, "linear_heads": [[1], [2]]}, "linear_heads", "a list of 3"),
        (
            {"thresholds": {"flash": 1, "linear": 1}, "linear_heads": [[1], 2, []]},
            "linear_heads[1]",
            "a list of KV group",
        ),
        ({"thresholds": {"flash": 1, "linear": 1}, "linear_head_gate": [3]}, "linear_head_gate[0]", "0 to 2"),
        ({"thresholds": {"flash": 1, "linear": 1}, "linear_value_size": 65}, "linear_value_size", "1 to 64"),
        ({"thresholds": {"flash": 1, "linear": 1}, "route_by": "length"}, "route_by", "position, prompt_length"),
        ({"thresholds": {"flash": 1, "linear": 1}, "batch_policy": 1}, "batch_policy", "per_row, uniform"),
        ({"thresholds": {"flash": 1, "linear": 1}, "default_unit": "flash"}, "default_unit", "goes with"),
        ({"routing_strategy": "layer_types"}, "layer_types", "missing"),
        ({"layer_types": ["linear_attention"] * 2}, "layer_types", "a list of 3"),
        ({"layer_types": ["linear_attention", "x", "flash"]}, "layer_types[1]", "'x'; allowed: hybrid_attention"),
        ({"layer_types": ["hybrid_attention"] * 3}, "thresholds", "missing"),
        (
            {"layer_types": ["full_attention", "linear_attention", "flash"], "linear_head_gate": [0]},
            "linear_head_gate",
            "layer 0 takes no part",
        ),
        ({**units(("flash", "true")), "thresholds": {}}, "thresholds", "the conditions say it"),
        ({"routing_strategy": "sequence_length", **units(("flash", "true"))}, "compute_units", "goes with"),
        ({"compute_units": []}, "compute_units", "a list of 1 to 64"),
        ({"compute_units": [7]}, "compute_units[0]", "a table"),
        ({"compute_units": [{"kernel": "flash", "condition": "true"}]}, "compute_units[0].name", "missing"),
        (
            {"compute_units": [{"name": "a", "kernel": "flash_attention", "condition": "true"}]},
            "compute_units[0].kernel",
            "did you mean flash_attn?",
        ),
        (
            {"compute_units": [{"name": "a", "kernel": "flash_attn", "layout": "compressed", "condition": "true"}]},
            "compute_units[0].layout",
            "allowed: pages or contiguous",
        ),
        (units(("flash", "seqlen <")), "compute_units[0].condition", "column 9"),
        (units(("flash", "seqlen < 9"), ("linear", "seqlen > 10")), "compute_units", "no unit covers 9–10 in layer 0"),
        (
            units(("flash", "head == 1 and seqlen < 9"), ("flash", "head != 1"), ("linear", "seqlen >= 20")),
            "compute_units",
            "no unit covers 9–19 in layer 0, KV group 1; allowed: a unit that does, or default_unit",
        ),
        (
            units(("flash", "entropy > 0.5"), ("linear", "true")),
            "compute_units",
            "entropy decides from 0 on; allowed: 64",
        ),
        (units(("flash", "seqlen < 63 or entropy > 0.5"), ("linear", "true")), "compute_units", "decides from 63 on"),
        (
            units(("flash", "seqlen < 64 or entropy > 0.9 or entropy < 0.1"), ("linear", "true")),
            "compute_units",
            "more than one entropy in 64–",
        ),
        (
            units(("flash", "seqlen < 64 or entropy > 0.9"), ("linear", "entropy < 0.1")),
            "compute_units",
            "units leave entropies uncovered in 64–",
        ),
        (
            {**units(("flash", "position < 9"), ("linear", "true")), "route_by": "prompt_length"},
            "compute_units[0].condition",
            "position",
        ),
        (
            {**units(("flash", "true")), "default_unit": "u1"},
            "default_unit",
            "is 'u1'; allowed: flash, flash_attn, linear, linear_attn, u0",
        ),
        (units(("flash", " or ".join(f"seqlen == {i * 2}" for i in range(200)))), "compute_units", "at most 256"),
    ],
)
def test_refusals_name_the_field_and_what_is_allowed(block: Any, path: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(block, SHAPE)
    assert caught.value.path == ("hybrid_config." + path).rstrip(".")
    assert str(caught.value).startswith(caught.value.path + ": ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_units_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"compute_units\[1\]\.name: 'flash_unit' is taken"):
        parse({"compute_units": [ARTICLE_UNITS[0], ARTICLE_UNITS[0]]}, SHAPE)


@pytest.mark.parametrize(
    ("block", "warning"),
    [
        ({"thresholds": {"flash": 64, "linear": None}}, "entropy decides for ever"),
        ({"thresholds": {"flash": 64, "linear": None}}, "never freed"),
        ({"thresholds": {"flash": 64, "linear": 64}, "entropy_threshold": 0.5}, "entropy_threshold has no effect"),
        ({"thresholds": {"flash": 64, "linear": 64}, "linear_head_ratio": 0}, "nothing can go linear"),
        ({"thresholds": {"flash": 64, "linear": 64}, "linear_head_gate": True}, "gated heads read K/V for ever"),
        ({"layer_types": ["linear"] * 3, "thresholds": {"flash": 64, "linear": 64}}, "thresholds have no effect"),
        (
            units(("flash", "seqlen < 9"), ("linear", "true"), ("flash", "seqlen == 3")),
            "'u2' is never used: earlier units",
        ),
        (
            units(("flash", "seqlen < 9"), ("linear", "true"), ("flash", "head == 9")),
            "'u2' is never used: its condition",
        ),
        (
            units(("flash", "seqlen < 9"), ("linear", "seqlen >= 5")),
            "'u0' and 'u1' both hold at 5–8: the first, 'u0', computes",
        ),
        (units(("linear", "seqlen >= 5"), default_unit="flash"), "hole at 0–4: flash computes it (default_unit)"),
    ],
)
def test_what_is_odd_but_allowed_is_a_warning(block: dict[str, Any], warning: str) -> None:
    assert any(warning in line for line in parse(block, SHAPE).warnings)


def test_names_of_both_kinds_are_accepted() -> None:
    ours = units(("flash", "seqlen < 9"), ("linear", "true"))
    theirs = units(("flash_attn", "seqlen < 9"), ("linear_attn", "true"))
    assert parse(ours, SHAPE).units == parse(theirs, SHAPE).units


def test_layers_that_cannot_be_routed_take_no_part() -> None:
    shape = ModelShape(4, 2, 64, routable=frozenset({1, 3}))
    config = parse({"thresholds": {"flash": 8, "linear": 8}}, shape)
    assert config.layers == {1, 3}
    assert [str(config.table(4, 2).at(layer, 0)) for layer in (0, 1)] == ["0– flash", "0–7 flash, 8– linear"]
    types = ["linear_attention", *["full_attention"] * 3]
    with pytest.raises(ConfigError, match=r"layer_types\[0\]: the attention of this layer can't be routed"):
        parse({"layer_types": types}, shape)


def test_a_gate_names_layers() -> None:
    assert parse({"thresholds": {"flash": 8, "linear": 8}, "linear_head_gate": [1]}, SHAPE).gated == {1}
    assert parse({"thresholds": {"flash": 8, "linear": 8}, "linear_head_gate": True}, SHAPE).gated == {0, 1, 2}
    assert parse({"thresholds": {"flash": 8, "linear": 8}, "linear_head_gate": False}, SHAPE).gated == frozenset()


@pytest.mark.parametrize(
    ("ratio", "heads", "linear"),
    [(0.5, 8, {1, 3, 5, 7}), (0.75, 4, {1, 2, 3}), (0.25, 4, {3}), (1 / 3, 3, {2}), (1.0, 2, {0, 1}), (0.0, 2, set())],
)
def test_linear_heads_are_spread(ratio: float, heads: int, linear: set[int]) -> None:
    assert spread_heads(ratio, heads) == linear


def test_a_ratio_counts_exactly_where_floats_do_not() -> None:
    assert len(spread_heads(0.29, 100)) == 29


@pytest.mark.parametrize("name", ROUTINGS)
def test_every_value_is_covered_exactly_once(name: str) -> None:
    table = parse(ROUTINGS[name], SHAPE).table(LAYERS, HEADS)
    for partition in table.partitions:
        ranges = partition.ranges
        assert ranges[0].start == 0 and ranges[-1].end is None
        for left, right in pairwise(ranges):
            assert left.end == right.start and left.start < right.start
            assert (left.kernel, left.threshold) != (right.kernel, right.threshold)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["flash", "seqlen < 9"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10) | st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_refused_with_a_path(document: Any) -> None:
    try:
        parse(document, SHAPE)
    except ConfigError as error:
        assert error.path.startswith("hybrid_config")
        assert "\n" not in str(error)


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(ROUTINGS)),
    st.dictionaries(st.sampled_from([*FIELDS, "x"]), json_values, max_size=2),
    st.data(),
)
def test_any_damage_to_a_good_block_is_refused_or_compiles(
    name: str, damage: dict[str, Any], data: st.DataObject
) -> None:
    block = {**ROUTINGS[name], **damage}
    for key in data.draw(st.lists(st.sampled_from(sorted(block)), max_size=2)):
        if isinstance(block.get(key), dict):
            block[key] = {**block[key], data.draw(st.sampled_from(["flash", "linear"])): data.draw(json_values)}
        else:
            block.pop(key, None)
    try:
        config = parse(block, SHAPE)
    except ConfigError as error:
        assert isinstance(error, HybridctlError) and error.path.startswith("hybrid_config")
    else:
        assert config.table(LAYERS, HEADS).at(0, 0).ranges
