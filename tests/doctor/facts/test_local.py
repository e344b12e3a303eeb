"""Facts of this machine: from folders made for the test, and from children that answer, fail or hang."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from hybridctl.doctor.facts import collect_local
from hybridctl.doctor.facts.child import Child, ChildError
from hybridctl.doctor.facts.local_nvml import finish_nvml, nvml_facts
from hybridctl.doctor.facts.local_packages import Interpreter, other_interpreter, package_facts
from hybridctl.doctor.facts.local_system import VARIABLES, system_facts
from hybridctl.doctor.facts.model import Fact, Facts
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


def test_a_child_that_hangs_costs_its_limit_and_no_more() -> None:
    begin = time.monotonic()
    child = Child([sys.executable, "-c", "import time; time.sleep(60)"], os.sep)
    with pytest.raises(ChildError, match="no answer within"):
        child.answer(0.3)
    assert time.monotonic() - begin < 2


def test_children_that_fail() -> None:
    with pytest.raises(ChildError, match="can't run"):
        Child(["/no/such/program"], os.sep)
    with pytest.raises(ChildError, match="no JSON"):
        Child([sys.executable, "-c", "pass"], os.sep).answer(10)
    facts, unknown = finish_nvml(Child([sys.executable, "-c", "import sys; sys.exit('segfault')"], os.sep))
    assert facts == []
    assert "segfault" in unknown[0].needs


def test_nvml_document() -> None:
    gpus = [
        {"name": "NVIDIA H200", "cc": "9.0", "memory": 150754820096},
        {"name": "NVIDIA L4", "cc": "8.9", "memory": 24152899584},
    ]
    facts, unknown = nvml_facts({"driver": "580.159.04", "cuda": 13000, "gpus": gpus})
    told = values(facts)
    assert (told["driver.version"], told["driver.cuda"]) == ("580.159.04", "13.0")
    assert (told["gpu.count"], told["gpu.cc"], told["gpu.memory_gib"]) == (2, "8.9", 22.49)
    assert unknown == []
    Facts(facts)  # every key exists


def test_nvml_without_memory_falls_back_to_the_table() -> None:
    facts, _ = nvml_facts(
        {"driver": "580", "cuda": 12080, "gpus": [{"name": "NVIDIA GB10", "cc": "12.1", "memory": None}]}
    )
    told = values(facts)
    assert (told["gpu.unified"], told["gpu.memory_gib"], told["driver.cuda"]) == (True, 119.7, "12.8")


@pytest.mark.parametrize("document", [{"missing": "an NVIDIA driver"}, [], None, {"driver": "1", "gpus": []}])
def test_nvml_without_gpus_is_unknown(document: object) -> None:
    facts, unknown = nvml_facts(document)
    assert len(unknown) == 1
    assert not any(f.key.startswith("gpu.") for f in facts)


def test_system_of_a_made_up_root(tmp_path: Path) -> None:
    for folder in ("etc", "proc/1", "usr/local/cuda", "dev/shm"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text('NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"\n')
    (tmp_path / "proc/meminfo").write_text("MemTotal:       131981020 kB\n")
    (tmp_path / "proc/1/cgroup").write_text("0::/kubepods/besteffort/pod1\n")
    (tmp_path / "usr/local/cuda/version.json").write_text(
        json.dumps({"cuda": {"name": "CUDA SDK", "version": "12.8.1"}})
    )
    told = values(system_facts(tmp_path, {"VLLM_USE_V1": "1", "HF_TOKEN": "hf_secret"}))
    assert told["platform.ram_gib"] == 125.87
    assert told["platform.container"] is True
    assert told["cuda.toolkit"] == "12.8.1"
    assert told["env.VLLM_USE_V1"] == "1"
    assert "env.HF_TOKEN" not in told
    assert "hf_secret" not in str(told)
    if sys.platform == "linux":
        assert told["platform.distro"] == "Ubuntu 24.04.2 LTS"


def test_no_mark_of_a_container_proves_nothing(tmp_path: Path) -> None:
    assert "platform.container" not in values(system_facts(tmp_path, {}))


def test_no_variable_on_the_list_can_hold_a_secret() -> None:
    for name in VARIABLES:
        assert not any(word in name for word in ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL"))


def test_the_machine_itself() -> None:
    begin = time.monotonic()
    facts, unknown = collect_local()
    assert time.monotonic() - begin < 6
    assert facts.value("platform.python") == ".".join(map(str, sys.version_info[:3]))
    assert facts.has("pkg.packaging")
    assert facts.has("driver.") or any("NVIDIA" in u.check for u in unknown)
    assert {f.origin.source for f in facts} == {"local"}
    for name in ("torch", "vllm", "pynvml"):
        assert name not in sys.modules
