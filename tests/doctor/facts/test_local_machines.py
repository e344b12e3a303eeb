"""Recorded machines, from the file tree to the findings: what is wrong with each, and what must be called unknown, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybridctl.doctor.diagnose import Diagnosis
from hybridctl.doctor.facts.model import Facts
from tests.doctor.facts.machines import DATA, Recorded, recorded

pytestmark = pytest.mark.lifecycle

PORTS = "/proc/self/net/tcp, which can't be read here"
STATE = "the driver's answer on processes, memory errors and connections: it gave none"
TP2 = "vllm serve Qwen/Qwen3-8B -tp 2"


@pytest.fixture
def see(tmp_path: Path):  # type: ignore[no-untyped-def]
    def look(name: str) -> Recorded:
        return recorded(name, tmp_path).look()

    return look


def loud(diagnosis: Diagnosis) -> set[str]:
    return {f.id for f in diagnosis.findings if f.severity != "info"}


def states(diagnosis: Diagnosis, *checks: str) -> dict[str, str]:
    return {o.check: o.state for o in diagnosis.outcomes if o.check in checks}


def test_wsl2(see) -> None:  # type: ignore[no-untyped-def]
    machine = see("wsl2")
    facts = machine.facts
    assert machine.missing() == {}
    assert facts.value("platform.wsl_version") == "2.7.0.0"
    assert (facts.value("wsl.memory_gib"), facts.value("platform.ram_gib")) == (16.0, 15.55)
    assert facts.value("driver.version") == "591.44"  # the Windows driver: R590 serves CUDA 13.1
    assert facts.value("disk.cache_fs") == "drvfs"
    found = machine.judge("vllm serve Qwen/Qwen3-8B")
    assert loud(found) == {"wsl-linux-driver", "weights-on-windows-drive", "port-in-use", "python-headers-missing"}
    assert states(found, "wheel-cuda-driver", "ptx-driver") == {"wheel-cuda-driver": "ok", "ptx-driver": "ok"}


def test_wsl2_without_its_tool_and_without_dxg(tmp_path: Path) -> None:
    machine = recorded("wsl2", tmp_path)
    machine.machine.path("/usr/bin/wslinfo").unlink()
    machine.machine.path("/dev/dxg").unlink()
    machine.look()
    assert machine.missing() == {
        "wsl-version": "the first line of `wsl --version` in Windows (--env takes it as: WSL version: 2.7.0)"
    }
    assert "wsl-no-dxg" in loud(machine.judge())


def test_wsl1_has_no_gpu(tmp_path: Path) -> None:
    machine = recorded("wsl2", tmp_path)
    machine.machine.path("/proc/sys/kernel/osrelease").write_text("4.4.0-19041-Microsoft\n")
    machine.look()
    assert machine.facts.value("platform.wsl_version") == "1"
    assert "wsl1-no-gpu" in loud(machine.judge())


def test_windows(see) -> None:  # type: ignore[no-untyped-def]
    machine = see("windows")
    facts = machine.facts
    assert machine.missing() == {
        "gpu-state": STATE, "ports": PORTS, "host-memory": "/proc/meminfo, which can't be read here",
    }  # fmt: skip
    assert facts.value("platform.os") == "windows"
    assert facts.value("cuda.toolkit") == "12.8.1"
    assert [t.split()[0] for t in facts.value("cuda.toolkits")] == ["12.8.1", "12.4.0"]
    assert facts.value("python.headers") is True
    assert facts.value("hub.token") is True
    assert facts.value("disk.cache") == r"C:\Users\Ann\.cache\huggingface\hub"
    assert "hf_nota" not in str(facts.to_json())
    assert "vllm-no-windows-build" in loud(machine.judge("vllm serve Qwen/Qwen3-8B"))


def test_two_gpus_of_different_kinds(see) -> None:  # type: ignore[no-untyped-def]
    machine = see("two-gpus")
    facts = machine.facts
    assert machine.missing() == {}
    assert facts.value("gpu.processes") == ["GPU 1: pid 4711 python3 main.py, 9.8 GiB"]
    assert "hunter2" not in str(facts.to_json())
    assert (facts.value("gpu.p2p"), facts.value("gpu.links")) == (False, ["PCIe (host bridge): 0-1"])
    found = machine.judge(TP2)
    assert loud(found) == {"different-gpus-unordered"}
    assert "gpus-without-peer-access" in {f.id for f in found.findings}
    held = next(o for o in found.outcomes if o.check == "gpu-held")
    assert (held.state, "GPUs of one kind" in held.detail) == ("unknown", True)


def test_memory_that_another_process_holds(tmp_path: Path) -> None:
    """The same two cards, as one kind: now it is known which of them the launch takes."""
    machine = recorded("two-gpus", tmp_path)
    nvml = machine.answers[0][1]["nvml"]  # type: ignore[index]
    nvml["gpus"][1]["name"] = nvml["gpus"][0]["name"]
    nvml["gpus"][1]["memory"] = nvml["gpus"][0]["memory"]
    machine.look()
    (held,) = [f for f in machine.judge(TP2).findings if f.id == "any-free-memory-below-utilization"]
    assert held.severity == "error"
    assert "pid 4711" in held.cause
    assert held.fix[0].command == "kill 4711"
    one = machine.judge("vllm serve Qwen/Qwen3-8B")
    assert states(one, "gpu-held") == {"gpu-held": "ok"}
    (word,) = [f for f in machine.judge().findings if f.id == "gpu-memory-held"]
    assert word.severity == "info"


def test_process_numbers_of_the_host_name_no_program_in_a_container(tmp_path: Path) -> None:
    machine = recorded("two-gpus", tmp_path)
    link = machine.machine.path("/proc/self/ns/pid")
    link.unlink()
    link.symlink_to("pid:[4026532201]")
    machine.look()
    assert machine.facts.value("gpu.processes") == ["GPU 1: pid 4711 (number on the host), 9.8 GiB"]


def test_mig(see) -> None:  # type: ignore[no-untyped-def]
    machine = see("mig")
    facts = machine.facts
    assert machine.missing() == {"gpu-state": STATE, "ports": PORTS}
    assert (facts.value("gpu.count"), facts.value("gpu.memory_gib")) == (1, 39.5)
    (found,) = [f for f in machine.judge(TP2).findings if f.id == "mig-with-several-ranks"]
    assert found.severity == "error"
    assert "one MIG device" in found.cause


def test_mig_under_a_newer_driver_shows_one_of_each_instance(tmp_path: Path) -> None:
    machine = recorded("mig", tmp_path)
    machine.answers[0][1]["nvml"]["driver"] = "580.95.05"  # type: ignore[index]
    machine.look()
    assert machine.facts.value("gpu.count") == 2
    (found,) = [f for f in machine.judge(TP2).findings if f.id == "mig-with-several-ranks"]
    assert found.severity == "warning"


def test_mig_without_an_instance(tmp_path: Path) -> None:
    machine = recorded("mig", tmp_path)
    machine.answers[0][1]["nvml"]["gpus"][0]["mig"] = []  # type: ignore[index]
    machine.look()
    assert "mig-without-instance" in loud(machine.judge())
    assert machine.missing()["gpu-state"] == STATE


def test_no_driver(see) -> None:  # type: ignore[no-untyped-def]
    machine = see("no-driver")
    assert machine.missing() == {
        "NVIDIA driver and GPUs": "an NVIDIA driver: libnvidia-ml.so.1 is not here, though the PCI bus has an NVIDIA GPU",
        "ports": PORTS,
    }
    assert machine.facts.value("gpu.pci") == [
        "nvidia 2330 0000:41:00.0"
    ]  # not the network card, not the board's own graphics
    assert not machine.facts.has("gpu.names")
    assert "nvidia-driver-missing" in loud(machine.judge())


def test_no_driver_in_a_container_is_a_matter_of_its_start(tmp_path: Path) -> None:
    machine = recorded("no-driver", tmp_path)
    machine.machine.path("/.dockerenv").write_text("")
    found = loud(machine.look().judge())
    assert "container-without-gpus" in found
    assert "nvidia-driver-missing" not in found


def test_a_driver_without_libcuda(see) -> None:  # type: ignore[no-untyped-def]
    machine = see("no-libcuda")
    assert machine.missing() == {"gpu-state": STATE, "ports": PORTS}
    assert machine.facts.value("driver.libcuda") == "not found"
    assert not machine.facts.has("driver.cuda")
    (found,) = [f for f in machine.judge().findings if f.severity == "error"]
    assert found.id == "libcuda-not-mounted"
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in str(found.fix)


def test_nvml_of_another_version(see) -> None:  # type: ignore[no-untyped-def]
    machine = see("nvml-mismatch")
    assert machine.missing() == {
        "NVIDIA driver and GPUs": "an answer of NVML, which refuses: Driver/library version mismatch (18)",
        "ports": PORTS,
    }
    assert machine.facts.value("gpu.names") == ["NVIDIA A10"]  # the module's own files still tell
    assert machine.facts.value("driver.version") == "570.86.15"
    assert "nvml-version-mismatch" in loud(machine.judge())


def test_nvml_uninitialised(see) -> None:  # type: ignore[no-untyped-def]
    machine = see("nvml-uninitialised")
    assert machine.missing() == {
        "NVIDIA driver and GPUs": "an answer of NVML, which refuses: Uninitialized (1)",
        "ports": PORTS,
    }
    found = machine.judge(TP2)
    assert not {f.id for f in found.findings if f.area == "driver-cuda"}
    assert states(found, "gpu-code", "gpu-count", "gpu-held", "mig") == dict.fromkeys(
        ("gpu-code", "gpu-count", "gpu-held", "mig"), "unknown"
    )


def test_a_container_without_shared_memory(see) -> None:  # type: ignore[no-untyped-def]
    machine = see("small-shm")
    facts = machine.facts
    assert machine.missing() == {"gpu-state": STATE}
    assert (facts.value("platform.shm_gib"), facts.value("platform.ram_limit_gib")) == (0.0625, 32.0)
    found = machine.judge("vllm serve Qwen/Qwen3-32B -tp 2 --cpu-offload-gb 20")
    assert loud(found) == {"shm-small-for-ranks", "port-in-use", "host-memory-too-small"}
    assert "cache-inside-container" in {f.id for f in found.findings}
    port = next(f for f in found.findings if f.id == "port-in-use")
    assert port.fix[-1].command == "vllm serve Qwen/Qwen3-32B --port 8001 -tp 2 --cpu-offload-gb 20"
    other = machine.judge("vllm serve Qwen/Qwen3-32B -tp 2 --port 8001 --cpu-offload-gb 10")
    assert loud(other) == {"shm-small-for-ranks"}


def test_conda(see) -> None:  # type: ignore[no-untyped-def]
    machine = see("conda")
    assert machine.missing() == {"gpu-state": STATE, "ports": PORTS}
    assert machine.facts.value("torch.installer") == "conda"
    found = machine.judge()
    assert loud(found) == {
        "library-path-before-torch", "libstdcxx-too-old", "conda-torch-static-nccl", "plugin-not-installed",
    }  # fmt: skip
    shadowed = next(f for f in found.findings if f.id == "library-path-before-torch")
    assert "libnvJitLink.so.12.4.127" in shadowed.cause
    assert "libcudnn.so.9" not in shadowed.cause  # its name does not tell its release
    assert states(found, "toolkit") == {"toolkit": "ok"}


def test_every_recorded_machine_has_a_test_and_facts_that_can_be_handed_on(tmp_path: Path) -> None:
    names = sorted(path.name for path in DATA.iterdir())
    here = Path(__file__).read_text(encoding="utf-8")
    for name in names:
        assert f'"{name}"' in here
        facts = recorded(name, tmp_path / name).look().facts
        assert Facts.from_json(facts.to_json()).to_json() == facts.to_json()
        assert str(tmp_path) not in str([f.value for f in facts])
