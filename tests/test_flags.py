"""The tables of flags and modules, as read from released wheels."""

from __future__ import annotations

import pytest

from hybridctl.flags import abbreviates, flag_window, hints, is_switch, long_name, modules, nearest_flags
from hybridctl.versions import parse_version


def holds(name: str, version: str) -> bool | None:
    window, point = flag_window(name), parse_version(version)
    assert window is not None
    assert point is not None
    return window.holds(point)


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("tensor-parallel-size", "0.6.3", True),
        ("tensor-parallel-size", "0.5.0", None),
        ("tensor-parallel-size", "0.40.0", None),
        ("enable-reasoning", "0.6.6", False),
        ("enable-reasoning", "0.8.5", True),
        ("enable-reasoning", "0.9.2", True),
        ("enable-reasoning", "0.10.0", False),
        ("engram-config", "0.29.0", False),
        ("engram-config", "0.30.0", True),
        ("gdn-prefill-backend", "0.17.0", False),
        ("gdn-prefill-backend", "0.17.1", None),
        ("swap-space", ">=0.20", False),
        ("swap-space", ">=0.16", None),
    ],
)
def test_windows(name: str, version: str, expected: bool | None) -> None:
    assert holds(name, version) is expected


def test_names() -> None:
    assert flag_window("hybrid-enabled") is None
    assert is_switch("enable-prefix-caching")
    assert not is_switch("max-model-len")
    assert long_name("-tp") == "tensor-parallel-size"
    assert "tensor-parallel-size" in nearest_flags("tensor-paralel-size")
    assert abbreviates("gpu-memory-util") == ["gpu-memory-utilization"]


def test_hints_point_to_flags_that_the_newest_release_takes() -> None:
    for name, hint in hints().items():
        assert hint.use or hint.why, name
        if hint.use:
            flag = hint.use.split()[0].removeprefix("--").split(".")[0]
            window = flag_window(flag) or flag_window(flag.removeprefix("no-"))
            assert window is not None, hint
            assert window.last is None, hint
        gone = flag_window(name)
        assert gone is None or gone.last is not None, name


def test_modules() -> None:
    legacy = modules()["vllm.entrypoints.api_server"]
    for version, expected in (("0.6.3", True), ("0.24.0", True), ("0.24.1", None), ("0.25.0", False)):
        point = parse_version(version)
        assert point is not None
        assert legacy.window.holds(point) is expected
    assert legacy.gone == legacy.window.absent_from
