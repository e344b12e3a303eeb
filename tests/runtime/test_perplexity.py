"""Perplexity by ranges of positions, and the routings that a served one is compared with."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from fake_routed import routed_server
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.runtime import perplexity
from hybridctl.runtime.checkpoint import demo
from hybridctl.runtime.http import Client
from hybridctl.runtime.perplexity import edges, of, other_routings, ratio


def test_ranges_are_cut_where_a_kernel_may_change() -> None:
    assert edges([256, 512], 512, 2046) == [(0, 256), (256, 512), (512, 1024), (1024, 2046)]
    assert edges([2048, 4096], 4096, 8191) == [(0, 2048), (2048, 4096), (4096, 8191)]
    assert edges([100], 100, 450) == [(0, 50), (50, 100), (100, 200), (200, 400), (400, 450)]
    assert edges([], 0, 300) == [(0, 64), (64, 128), (128, 256), (256, 300)]  # linear everywhere
    assert edges([256, 260], 260, 300) == [(0, 130), (130, 256), (256, 300)]  # none too short to tell anything


@given(st.lists(st.integers(0, 5000), max_size=6), st.integers(0, 5000), st.integers(1, 9000))
def test_ranges_cover_every_position_once(marks: list[int], first: int, length: int) -> None:
    found = edges(marks, first, length)
    assert (found[0][0], found[-1][1]) == (0, length)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(found))
    assert all(end - start >= min(perplexity.SHORTEST, length) for start, end in found)


def test_perplexity_of_a_range_is_of_its_own_positions() -> None:
    rows = [[1.0] * 10 + [2.0] * 10, [1.0] * 10 + [3.0] * 10]
    found = of("x", rows, 10, [(0, 10), (10, 20)])
    assert [p.value for p in found.parts] == pytest.approx([math.e, math.exp(2.5)])
    assert found.whole.value == pytest.approx(math.exp(2.5))
    assert (found.served, found.whole.factor) == (True, None)
    beside = of("y", [[2.0] * 20, [2.0] * 20], 10, [(0, 10), (10, 20)], rows)
    assert beside.parts[0].factor == pytest.approx((math.e, math.e, math.e))
    assert beside.whole.factor == pytest.approx((math.exp(-0.5), math.exp(-1), 1.0))


def test_one_window_has_no_interval() -> None:
    assert of("y", [[2.0] * 20], 10, [(0, 20)], [[1.0] * 20]).whole.factor is None


def test_windows_of_different_lengths() -> None:
    found = of("x", [[1.0] * 30, [2.0] * 15], 5, [(0, 20), (20, 30)], [[1.0] * 30, [1.0] * 15])
    assert found.parts[0].value == pytest.approx(math.exp(1.5))
    assert (found.parts[1].value, found.parts[1].factor) == (pytest.approx(math.e), None)


def test_the_interval_of_a_ratio_holds_it() -> None:
    value, low, high = ratio([2.0, 2.2, 2.1, 1.9], [1.0, 1.3, 1.0, 1.1])
    assert low < value < high
    assert low > 1


def test_other_routings_differ_only_in_what_they_say() -> None:
    config = demo().config["hybrid_config"]
    others = other_routings(config, 2049)
    thresholds = {name: (t["thresholds"]["flash"], t["thresholds"]["linear"]) for name, t in others.items()}
    assert thresholds == {
        "all flash": (2049, 2049),
        "all linear": (0, 0),
        "thresholds halved": (128, 256),
        "thresholds doubled": (512, 1024),
    }
    assert others["thresholds halved"]["fallback_policy"] == config["fallback_policy"]


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"thresholds": {"flash": 0, "linear": 0}}, {"all flash"}),
        ({"thresholds": {"flash": 64, "linear": None}}, {"all flash", "all linear"}),
        ({"compute_units": [{"kernel": "linear"}]}, {"all flash", "all linear"}),
        # Entropy needs 64 keys.
        ({"thresholds": {"flash": 100, "linear": 200}}, {"all flash", "all linear", "thresholds doubled"}),
    ],
)
def test_only_routings_that_exist(config: dict[str, Any], names: set[str]) -> None:
    found = other_routings(config, 999)
    assert set(found) == names
    assert not any("compute_units" in other for other in found.values())


def test_windows_are_apart_and_as_long_as_asked_for() -> None:
    texts = perplexity.texts()
    with routed_server() as url:
        client = Client(url)
        short = perplexity.windows(client, "m", 4, 2000)
        long = perplexity.windows(client, "m", 3, 9000)
        every = perplexity.windows(client, "m", 10_000, 2000)
        endless = perplexity.windows(client, "m", 4, 10_000_000)
    assert [len(w) for w in short] == [2000] * 4
    assert [len(w) for w in long] == [9000] * 3
    assert len({tuple(w) for w in every}) == len(every) == len(texts)
    assert len(endless) == 1
    assert bytes(short[0][1:]).decode() in "".join(texts)
