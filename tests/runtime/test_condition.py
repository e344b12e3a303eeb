"""Conditions: what they hold for, errors with the column, text and tree as one, folding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.runtime.condition import (
    NAMES,
    Comparison,
    Condition,
    Constant,
    Every,
    Member,
    Some,
    bind,
    entropy_cuts,
    holds,
    names,
    negation,
    value_cuts,
)
from hybridctl.runtime.condition_parser import MAX_DEPTH, MAX_LENGTH, ConditionError, parse_condition

OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


@st.composite
def leaves(draw: st.DrawFn) -> Condition:
    name = draw(st.sampled_from(NAMES))
    if name == "entropy":
        number = draw(st.integers(0, 1000)) / 1000
        return Comparison(name, draw(st.sampled_from(["<", "<=", ">", ">="])), number)
    modulus = draw(st.sampled_from([0, 0, 2, 3])) if name in ("head", "layer") else 0
    if draw(st.booleans()):
        return Member(name, tuple(sorted(draw(st.sets(st.integers(0, 99), min_size=1, max_size=4)))), modulus)
    return Comparison(name, draw(OPERATORS), draw(st.integers(0, 99)), modulus)


trees = st.recursive(
    leaves() | st.builds(Constant, st.booleans()),
    lambda inner: (
        st.builds(negation, inner)
        | st.builds(Every, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Some, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=12,
)
tokens = st.fixed_dictionaries(
    {
        "value": st.integers(0, 100),
        "entropy": st.integers(0, 1000).map(lambda n: n / 1000),
        "head": st.integers(0, 7),
        "layer": st.integers(0, 7),
    }
)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("seqlen < 2048", {"value": 2047}, {"value": 2048}),
        ("2048 <= seqlen < 4096 and entropy > 0.8", {"value": 4095, "entropy": 0.81}, {"value": 4095, "entropy": 0.8}),
        ("position >= 40 and head % 2 == 1", {"value": 40, "head": 3}, {"value": 40, "head": 2}),
        ("layer in [0, 3, 5]", {"layer": 3}, {"layer": 4}),
        ("layer not in [0, 3, 5]", {"layer": 4}, {"layer": 3}),
        ("not (seqlen < 5 or head == 1)", {"value": 5, "head": 0}, {"value": 5, "head": 1}),
        ("not seqlen < 5", {"value": 5}, {"value": 4}),
        ("5 > seqlen", {"value": 4}, {"value": 5}),
        ("(head % 3) == 2", {"head": 5}, {"head": 6}),
        ("head == 0 or head == 1 and layer == 2", {"head": 0, "layer": 9}, {"head": 1, "layer": 9}),
        ("true and not false", {}, None),
        ("entropy <= .5", {"entropy": 0.5}, {"entropy": 0.6}),
    ],
)
def test_meaning(text: str, yes: dict[str, float], no: dict[str, float] | None) -> None:
    rest = {"value": 0, "entropy": 0.0, "head": 0, "layer": 0}
    condition = parse_condition(text)
    assert holds(condition, **{**rest, **yes})  # type: ignore[arg-type]
    assert no is None or not holds(condition, **{**rest, **no})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", 1, "ends"),
        ("seqlen <", 9, "a name, a number"),
        ("seqlen < 5 head", 12, "and, or, or the end"),
        ("seqlem < 5", 1, "did you mean seqlen?"),
        ("Layer == 1", 1, "did you mean layer?"),
        ("blocks > 5", 1, "known: seqlen"),
        ("seqlen = 5", 8, "equality is =="),
        ("seqlen < 5 && head == 1", 12, "write and"),
        ("seqlen > -1", 10, "numbers start at 0"),
        ("seqlen < 2.5", 10, "whole number"),
        ("entropy == 0.8", 9, "<, <=, > or >="),
        ("entropy > 80", 11, "between 0 and 1"),
        ("entropy in [1]", 9, "in takes"),
        ("seqlen % 2 == 0", 8, "only head and layer"),
        ("head % 0 == 0", 8, "1 or more"),
        ("1 < 2", 3, "one name and one number"),
        ("seqlen < position", 8, "one name and one number"),
        ("seqlen", 1, "compared with nothing"),
        ("head == 1 and layer", 15, "compared with nothing"),
        ("(seqlen < 5", 12, "')'"),
        ("layer in [1, 2", 15, "',' or ']'"),
        ("layer in []", 11, "a number"),
        ("layer in [1.5]", 11, "whole number"),
        ("seqlen < 99999999999999999999999", 10, "2^40"),
        ("__import__(1)", 1, "unknown name"),
        ("(seqlen < 5) < 6", 14, "end"),
    ],
)
def test_errors_point_at_the_column(text: str, column: int, says: str) -> None:
    with pytest.raises(ConditionError) as caught:
        parse_condition(text)
    assert caught.value.column == column, str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_depth_and_length_are_bounded() -> None:
    fits = "(" * MAX_DEPTH + "head == 1" + ")" * MAX_DEPTH
    assert parse_condition(fits) == Comparison("head", "==", 1)
    for text in (f"({fits})", "not " * 3000, "(" * 4000):
        with pytest.raises(ConditionError, match="nested"):
            parse_condition(text[:MAX_LENGTH])
    with pytest.raises(ConditionError, match="longer"):
        parse_condition("head == 1" + " " * MAX_LENGTH)
    assert isinstance(parse_condition(" or ".join(["(head == 1)", "not head == 2"] * 100)), Some)


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("seqlen < 5", {5}),
        ("seqlen >= 5", {5}),
        ("seqlen <= 5 or position > 7", {6, 8}),
        ("seqlen == 5", {5, 6}),
        ("position not in [0, 3]", {1, 3, 4}),
        ("head < 5 and entropy < 0.5", set()),
    ],
)
def test_values_at_which_a_condition_may_change(text: str, cuts: set[int]) -> None:
    assert value_cuts(parse_condition(text)) == cuts


@given(trees)
def test_text_of_a_tree_parses_to_the_tree(tree: Condition) -> None:
    assert parse_condition(str(tree)) == tree


@given(trees, tokens)
def test_binding_names_keeps_the_meaning(tree: Condition, token: dict[str, float]) -> None:
    bound = bind(tree, {"head": token["head"], "layer": token["layer"]})
    assert names(bound) <= {"seqlen", "position", "entropy"}
    assert holds(bound, token["value"], token["entropy"]) == holds(tree, **token)  # type: ignore[arg-type]
    rest = bind(bound, {"seqlen": token["value"], "position": token["value"], "entropy": token["entropy"]})
    assert rest == Constant(holds(tree, **token))  # type: ignore[arg-type]


@given(trees, tokens)
def test_nothing_changes_between_cuts(tree: Condition, token: dict[str, float]) -> None:
    here = holds(tree, **token)  # type: ignore[arg-type]
    if token["value"] + 1 not in value_cuts(tree):
        assert holds(tree, **{**token, "value": token["value"] + 1}) == here  # type: ignore[arg-type]
    nearby = token["entropy"] + 0.0005  # the strategies give thousandths
    if token["entropy"] not in entropy_cuts(tree):
        assert holds(tree, **{**token, "entropy": nearby}) == here  # type: ignore[arg-type]


@given(
    st.text()
    | st.lists(st.sampled_from([*NAMES, *"<>=!()[],%. ", "<=", "and", "or", "not", "in", "7", "0.5"])).map(" ".join)
)
def test_any_text_parses_or_gives_a_condition_error(text: str) -> None:
    try:
        tree = parse_condition(text)
    except ConditionError as error:
        assert 1 <= error.column <= len(text) + 1
    else:
        assert parse_condition(str(tree)) == tree
