from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.globs import glob


@pytest.mark.parametrize("pattern", ["abc", "*abc", "abc*", "*abc*", "a*c", "*", "**", "", "a?c", "[ab]*", "*b?*"])
@pytest.mark.parametrize("text", ["abc", "xabc", "abcx", "xabcx", "ac", "", "b"])
def test_agrees_with_fnmatch(text: str, pattern: str) -> None:
    assert glob(text, pattern) is fnmatchcase(text, pattern)


@given(st.text("ab*?[]", max_size=8), st.text("ab", max_size=8))
def test_agrees_with_fnmatch_on_anything(pattern: str, text: str) -> None:
    assert glob(text, pattern) is fnmatchcase(text, pattern)
