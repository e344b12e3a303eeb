import re

import pytest

from hybridctl.data import recipes_dir
from hybridctl.doctor.knowledge import PHRASES, expand, read_toml
from hybridctl.errors import BrokenDataError

FOLDER = recipes_dir() / "known_bad"


def test_a_phrase_becomes_a_group_wherever_it_stands() -> None:
    entry = {"when": {"report.said": "<<hang>> at start|x"}, "symptom": [{"regex": "a<<hang>>"}], "last": 3}
    assert expand(entry, {"hang": "(?:stuck|frozen)"}) == {
        "when": {"report.said": "(?:stuck|frozen) at start|x"},
        "symptom": [{"regex": "a(?:stuck|frozen)"}],
        "last": 3,
    }


def test_an_unknown_phrase_is_named() -> None:
    with pytest.raises(BrokenDataError, match="no phrase 'hnag'"):
        expand("<<hnag>>", {})


@pytest.mark.parametrize("name", sorted(read_toml(FOLDER / PHRASES)))
def test_every_phrase_is_used_and_every_wording_is_a_pattern(name: str) -> None:
    for wording in read_toml(FOLDER / PHRASES)[name]:
        assert re.compile(wording).match("") is None
    assert any(f"<<{name}>>" in path.read_text(encoding="utf-8") for path in FOLDER.glob("[a-z0-9]*.toml"))
