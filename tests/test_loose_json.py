import time

import pytest

from hybridctl.loose_json import flatten, loads


@pytest.mark.parametrize("text", ["{" + "a" * 60_000, '{"' + "a" * 60_000, "{" + "a." * 30_000, "{" + " " * 60_000])
def test_a_long_word_without_a_colon_takes_no_quadratic_time(text: str) -> None:
    begin = time.process_time()
    loads(text)
    assert time.process_time() - begin < 2


def test_numbers_that_count_nothing_are_no_statement() -> None:
    value = {"a": float("inf"), "b": float("nan"), "c": 10**30, "d": -(10**5000), "e": 1.5, "f": True}
    assert dict(flatten(value)) == {"e": 1.5, "f": True}
