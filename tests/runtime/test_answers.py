"""Greedy answers beside another opinion of the same tokens."""

from __future__ import annotations

import pytest
from fake_routed import SURE, routed_server

from hybridctl.errors import HybridctlError
from hybridctl.runtime import answers
from hybridctl.runtime.answers import Agreement, Answer
from hybridctl.runtime.http import Client

ANSWER = Answer((1, 2, 3), (7, 8, 8), (-0.1, -0.2, -0.3))
"""Its tokens are computed by positions 2, 3 and 4."""


def row(argmax: list[int], gap: list[float], logprobs: list[float]) -> dict[str, list[float]]:
    return {"argmax": argmax, "gap": gap, "logprobs": logprobs}


SAME = row([7, 8, 8], [1.0, 1.0, 1.0], [-0.1, -0.2, -0.3])


@pytest.mark.parametrize(
    ("other", "start", "end", "told"),
    [
        (SAME, 0, None, Agreement(3, 2, 0, 0.0)),
        (SAME, 3, None, Agreement(2, 1, 0, 0.0)),
        (SAME, 0, 3, Agreement(1, 1, 0, 0.0)),
        (SAME, 5, None, Agreement(0, 0, 0, 0.0)),
        (row([7, 9, 8], [1.0, 0.04, 1.0], [-0.1, -0.2, -0.3]), 0, None, Agreement(3, 2, 0, 0.0)),  # a tie
        (row([7, 9, 8], [1.0, 0.06, 1.0], [-0.1, -0.2, -0.3]), 0, None, Agreement(3, 2, 1, 0.0)),
        (row([7, 9, 8], [1.0, 0.06, 1.0], [-0.1, -0.2, -0.3]), 4, None, Agreement(1, 1, 0, 0.0)),
        (row([7, 8, 8], [1.0, 1.0, 1.0], [-0.1, -0.2, -0.8]), 0, None, Agreement(3, 2, 0, 0.5)),
    ],
)
def test_tokens_are_compared_by_the_position_that_computes_them(
    other: dict[str, list[float]], start: int, end: int | None, told: Agreement
) -> None:
    assert answers.compare([ANSWER], [other], start, end) == told


def test_a_server_scores_what_it_would_have_said_itself() -> None:
    with routed_server(odd=lambda p: p == 4) as url:
        client = Client(url)
        (told,) = answers.greedy(client, "m", [[1, 2, 3]], 4)
        assert told.ids == (4, 5, 7, 8)
        scored = answers.scored(client, "m", told.whole, 3)
        assert scored == {"argmax": [4, 5, 7, 8], "logprobs": [SURE] * 4, "gap": [0.0] * 4}
        scored = answers.scored(client, "m", [1, 2, 3, 4, 5, 6, 7], 3)
        assert scored["argmax"] == [4, 5, 7, 7]
        assert scored["gap"] == pytest.approx([0, 0, 0.9, 0])
        assert answers.losses(client, "m", [1, 2, 9]) == pytest.approx([0.1, 1.0])


def test_what_a_server_refuses_is_passed_on() -> None:
    with routed_server() as url, pytest.raises(HybridctlError, match="a completion after 3000 tokens fails: 400: too"):
        answers.losses(Client(url), "m", [1] * 3000)


def test_unreachable() -> None:
    with pytest.raises(HybridctlError, match="does not answer"):
        Client("http://127.0.0.1:1").get("/health")
