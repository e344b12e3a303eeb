import time

import pytest

from hybridctl.model.config import read_config
from hybridctl.model.json_spans import key_spans


@pytest.mark.parametrize("text", ['{"a":' * 50_000 + "1" + "}" * 50_000, '{"a"' + ":" * 3_000_000, "{'a':1," * 300_000])
def test_hostile_text_takes_no_quadratic_time(text: str) -> None:
    begin = time.process_time()
    key_spans(text)
    read_config(text)
    assert time.process_time() - begin < 4


def test_a_key_is_found_with_its_value() -> None:
    text = '{"text_config": {"head_dim": 256}}'
    begin, end = key_spans(text)["text_config.head_dim"]
    assert text[begin:end] == '"head_dim": 256'


@pytest.mark.parametrize("number", ["1e400", "NaN", "1e308", "9" * 40, "-1e30", "9" * 4000])
def test_numbers_beyond_reason_are_a_problem_and_no_value(number: str) -> None:
    config = read_config('{"model_type": "qwen3_next", "hidden_size": ' + number + "}")
    assert config.hidden_size is None
    assert any("hidden_size" in problem for problem in config.problems)
