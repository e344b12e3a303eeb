"""Each kind of version outside the window gets its own line."""

from __future__ import annotations

import pytest

from hybridctl.runtime.vllm_plugin.window import VersionError, check_version


@pytest.mark.parametrize("version", ["0.30.0", "0.30.1rc1", "0.32.0", "0.32.0+cpu", "0.33.2", "0.33.1.dev4+gabc"])
def test_inside(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("0.6.3", "old engine"),
        ("0.6.3.post1", "old engine"),
        ("0.29.0", "before 0.30"),
        ("0.11.2", "before 0.30"),
        ("0.34.0", "newer"),
        ("0.34.0rc1", "newer"),
        ("0.34.1.dev3+gdeadbee", "newer"),
        ("1.0.0", "newer"),
    ],
)
def test_outside(version: str, why: str) -> None:
    with pytest.raises(VersionError) as caught:
        check_version(version)
    line = str(caught.value)
    assert why in line
    assert version in line
    assert ">=0.30,<0.34" in line
    assert "\n" not in line
