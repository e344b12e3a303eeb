"""Collectors of this machine one by one, on folders made for the test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.facts.local_container import container_facts
from hybridctl.doctor.facts.local_cuda import toolkit_facts
from hybridctl.doctor.facts.local_disk import cache_folder, disk_facts
from hybridctl.doctor.facts.local_environ import VARIABLES, variable_facts
from hybridctl.doctor.facts.local_gpus import visible
from hybridctl.doctor.facts.local_hub import cached_facts, hub_facts
from hybridctl.doctor.facts.local_libraries import library_facts
from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_memory import memory_facts
from hybridctl.doctor.facts.local_network import network_facts
from hybridctl.doctor.facts.local_nvml import nvml_facts
from hybridctl.doctor.facts.local_packages import Interpreter
from hybridctl.doctor.facts.local_pci import driver_file_facts
from hybridctl.doctor.facts.local_python import python_facts
from hybridctl.doctor.facts.local_system import system_facts
from hybridctl.doctor.facts.local_wsl import wsl_facts
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Unknown

pytestmark = pytest.mark.lifecycle


def made(root: Path, files: dict[str, str] | None = None, **environ: str) -> Machine:
    for place, text in (files or {}).items():
        path = root / place.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(environ, root, platform="linux", arch="x86_64", libc="glibc 2.36")


def told(items: Iterable[Fact | Unknown]) -> dict[str, object]:
    return {item.key: item.value for item in items if isinstance(item, Fact)}


def missing(items: Iterable[Fact | Unknown]) -> list[str]:
    return [item.check for item in items if isinstance(item, Unknown)]


def program(path: Path, prints: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{prints}\n")
    path.chmod(0o755)
    return path


# --- CUDA toolkits


def test_toolkits_by_their_files_without_starting_anything(tmp_path: Path) -> None:
    machine = made(
        tmp_path,
        {
            "/usr/local/cuda-12.8/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}',
            "/usr/local/cuda-13.0/targets/x86_64-linux/include/cuda.h": "#define CUDA_VERSION 13000\n",
            "/usr/local/cuda-13.0/targets/x86_64-linux/include/cuda_runtime.h": "",
            "/opt/cuda-10.2/version.txt": "CUDA Version 10.2.89\n",
        },
        CUDA_HOME="/usr/local/cuda-13.0",
    )
    (tmp_path / "usr/local/cuda").symlink_to(tmp_path / "usr/local/cuda-12.8")
    program(tmp_path / "usr/local/cuda-13.0/bin/nvcc", "exit 9")
    facts = told(toolkit_facts(machine))
    assert facts["cuda.toolkits"] == [
        "13.0 /usr/local/cuda-13.0",
        "12.8.1 /usr/local/cuda-12.8",
        "10.2.89 /opt/cuda-10.2",
    ]
    assert (facts["cuda.home"], facts["cuda.toolkit"], facts["cuda.ptx"]) == ("/usr/local/cuda-13.0", "13.0", "9.0")
    assert facts["cuda.headers"] is True


def test_an_nvcc_away_from_its_toolkit_is_asked(tmp_path: Path) -> None:
    machine = made(tmp_path, PATH="/usr/local/bin")
    nvcc = program(tmp_path / "usr/local/bin/nvcc", "echo 'Cuda compilation tools, release 12.9, V12.9.86'")
    facts = told(toolkit_facts(machine))
    assert (facts["cuda.toolkit"], facts["cuda.ptx"]) == ("12.9.86", "8.8")
    assert (facts["cuda.home"], facts["cuda.headers"]) == ("/usr/local", False)
    program(nvcc, "exec sleep 20")
    items = list(toolkit_facts(machine))
    assert missing(items) == ["cuda-toolkit"]
    assert "cuda.toolkit" not in told(items)


def test_a_cuda_home_that_is_not_there(tmp_path: Path) -> None:
    facts = told(toolkit_facts(made(tmp_path, CUDA_HOME="/usr/local/cuda-12.4")))
    assert facts == {"cuda.home": "/usr/local/cuda-12.4", "cuda.nvcc": "not found", "cuda.headers": False}


# --- the cache and its file system

MOUNTS = """\
28 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw
40 28 0:44 / /data rw - nfs4 filer:/export/a\\040b rw,vers=4.2
41 28 0:45 / /mnt/c rw,noatime - 9p C:\\134 rw,aname=drvfs;path=C:\\;uid=1000
42 28 0:46 / /run/gvisor rw - 9p none rw,trans=fd
43 28 0:47 / /mnt/w rw - virtiofs drvfsaC0 rw
"""


@pytest.mark.parametrize(
    ("home", "kind"),
    [
        ("/data/hf", "nfs4"),
        ("/mnt/c/hf", "drvfs"),
        ("/run/gvisor/x", "9p"),
        ("/home/a/hf", "ext4"),
        ("/mnt/cd", "ext4"),
    ],
)
def test_file_system_of_the_cache(tmp_path: Path, home: str, kind: str) -> None:
    machine = made(tmp_path, {"/proc/self/mountinfo": MOUNTS}, HF_HOME=home)
    assert told(disk_facts(machine))["disk.cache_fs"] == kind


def test_links_are_followed_up_to_a_mount_that_may_hang(tmp_path: Path) -> None:
    machine = made(tmp_path, {"/proc/self/mountinfo": MOUNTS, "/home/a/x": ""}, HOME="/home/a")
    (tmp_path / "home/a/.cache").symlink_to("../../srv/cache")
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv/cache").symlink_to("/data/cache")
    assert told(disk_facts(machine))["disk.cache_fs"] == "nfs4"
    (tmp_path / "srv/cache").unlink()
    (tmp_path / "srv/cache").symlink_to("cache")  # a link to itself
    assert told(disk_facts(machine))["disk.cache_fs"] == "ext4"


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/h"}, "/h/.cache/huggingface/hub"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HOME": "/h", "HF_HOME": "~/m"}, "/h/m/hub"),
        ({"HOME": "/h", "HF_HOME": "/m", "HF_HUB_CACHE": "/c"}, "/c"),
    ],
)
def test_the_cache_is_where_the_hub_puts_it(environ: dict[str, str], folder: str) -> None:
    found = cache_folder(Machine(environ, platform="linux"))
    assert found is not None
    assert found[0] == folder


def test_without_a_home_the_cache_is_unknown(tmp_path: Path) -> None:
    assert missing(disk_facts(made(tmp_path))) == ["hub-cache"]


def test_free_space_of_the_folder_that_is_there(tmp_path: Path) -> None:
    asked: list[Path] = []

    def space(path: Path) -> tuple[int, int]:
        asked.append(path)
        return 10 * 2**30, 5 * 2**30

    made(tmp_path, {"/home/a/x": ""})
    machine = Machine({"HOME": "/home/a"}, tmp_path, platform="linux", space=space)
    assert told(disk_facts(machine))["disk.cache_free_gib"] == 5.0
    assert asked == [tmp_path / "home/a"]


# --- memory, container, network


def test_memory_limits_of_both_kinds_of_groups(tmp_path: Path) -> None:
    meminfo = {"/proc/meminfo": "MemTotal:       67108864 kB\n"}
    v2 = made(
        tmp_path / "a",
        {
            **meminfo,
            "/proc/self/cgroup": "0::/user.slice/app\n",
            "/sys/fs/cgroup/user.slice/app/memory.max": "max\n",
            "/sys/fs/cgroup/user.slice/memory.max": "8589934592\n",
        },
    )
    assert told(memory_facts(v2))["platform.ram_limit_gib"] == 8.0
    v1 = made(
        tmp_path / "b",
        {
            **meminfo,
            "/proc/self/cgroup": "4:cpu,memory:/docker/abc\n0::/\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "4294967296\n",
        },
    )
    assert told(memory_facts(v1))["platform.ram_limit_gib"] == 4.0
    none = made(
        tmp_path / "c",
        {
            **meminfo,
            "/proc/self/cgroup": "4:memory:/\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert "platform.ram_limit_gib" not in told(memory_facts(none))


@pytest.mark.parametrize(
    ("files", "environ", "engine"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"/proc/1/cgroup": "0::/kubepods/besteffort/pod1\n"}, {}, "kubernetes"),
    ],
)
def test_marks_of_container_engines(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], engine: str
) -> None:
    facts = told(container_facts(made(tmp_path, files, **environ)))
    assert (facts["platform.container"], facts["platform.container_engine"]) == (True, engine)


def test_no_mark_of_a_container_proves_nothing(tmp_path: Path) -> None:
    assert told(container_facts(made(tmp_path))) == {}


def test_limits_of_the_process(tmp_path: Path) -> None:
    files = {
        "/proc/self/status": "CapEff:\t0000000000084000\n",
        "/proc/self/limits": "Max locked memory  unlimited unlimited bytes\n",
    }
    facts = told(container_facts(made(tmp_path, files)))
    assert facts["platform.capabilities"] == ["ipc_lock", "sys_ptrace"]
    assert facts["platform.memlock_gib"] == 2.0**33


def test_ports_that_somebody_listens_on(tmp_path: Path) -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n"
        "   1: 0100007F:C001 0100007F:1F90 01 00000000:00000000\n"
    )
    six = "   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 0\n"
    machine = made(
        tmp_path, {"/proc/self/net/tcp": table, "/proc/self/net/tcp6": six, "/sys/class/infiniband/mlx5_0/x": ""}
    )
    facts = told(network_facts(machine))
    assert facts == {"platform.ports": ["8000", "8080"], "platform.infiniband": ["mlx5_0"]}


# --- Python, libraries, hub, variables


def test_what_compiling_for_a_python_needs(tmp_path: Path) -> None:
    program(tmp_path / "usr/bin/clang", "")
    made(tmp_path, {"/usr/include/python3.12/Python.h": "", "/extra/Python.h": ""})
    python = Interpreter("3.12.3", (), "python", "/v", "/usr")
    facts = told(python_facts(python, made(tmp_path, PATH="/nowhere:/usr/bin")))
    assert (facts["python.headers"], facts["python.compiler"], facts["python.venv"]) == (True, "/usr/bin/clang", True)
    other = Interpreter("3.11.9", (), "python", "/v", "/usr")
    facts = told(python_facts(other, made(tmp_path, PATH="/usr/bin", CC="gcc-9 -O2")))
    assert (facts["python.headers"], facts["python.compiler"]) == (False, "not found")
    assert told(python_facts(other, made(tmp_path, CPATH="/extra")))["python.headers"] is True


def test_libraries_before_those_of_torch(tmp_path: Path) -> None:
    machine = made(
        tmp_path,
        {"/a/libnccl.so.2.18.3": "", "/a/libnccl.so.2": "", "/a/libpng.so.16": "", "/b/libnccl.so.2.27.3": ""},
        LD_LIBRARY_PATH="relative:/nothing:/a::/b/",
    )
    assert told(library_facts(machine)) == {"cuda.shadowing": ["/a/libnccl.so.2.18.3"]}
    assert told(library_facts(made(tmp_path))) == {}


def test_the_hub_by_presence_never_by_value(tmp_path: Path) -> None:
    machine = made(
        tmp_path, HOME="/h", HF_TOKEN="hf_abcdefghijklmnopq", HF_ENDPOINT="https://u:secret@mirror", HF_HUB_OFFLINE="1"
    )
    facts = list(hub_facts(machine))
    assert told(facts) == {"hub.token": True, "hub.endpoint": True, "hub.offline": True}
    assert not any(word in str(facts) for word in ("hf_abc", "secret", "mirror"))
    stored = made(
        tmp_path, {"/h/.cache/huggingface/token": "hf_abcdefghijklmnopq"}, HOME="/h", HF_HUB_CACHE="/elsewhere"
    )
    assert told(hub_facts(stored))["hub.token"] is True
    assert told(hub_facts(made(tmp_path, HOME="/other")))["hub.token"] is False


def test_weights_in_the_cache(tmp_path: Path) -> None:
    machine = made(tmp_path, {"/c/models--Qwen--Qwen3-8B/snapshots/abc/config.json": ""}, HF_HUB_CACHE="/c")
    assert told(cached_facts(machine, "Qwen/Qwen3-8B")) == {"hub.cached": False}
    made(tmp_path, {"/c/models--Qwen--Qwen3-8B/snapshots/abc/model-00001-of-2.safetensors": ""})
    assert told(cached_facts(machine, "Qwen/Qwen3-8B")) == {"hub.cached": True}
    assert told(cached_facts(machine, "/models/mine")) == {}


def test_variables_by_name_only(tmp_path: Path) -> None:
    machine = made(tmp_path, VLLM_USE_V1="1", HF_TOKEN="hf_secret", VLLM_API_KEY="k", LD_LIBRARY_PATH="/a")
    assert told(variable_facts(machine)) == {"env.VLLM_USE_V1": "1", "env.LD_LIBRARY_PATH": "/a"}
    for name in VARIABLES:
        assert not any(
            word in name for word in ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL", "ENDPOINT", "PROXY")
        )


# --- GPUs


def gpu(name: str = "NVIDIA L4", **more: object) -> dict[str, object]:
    return {"name": name, "cc": "8.9", "memory": 24152899584, "free": 1 << 30, "uuid": f"GPU-{name[-1]}", **more}


@pytest.mark.parametrize(
    ("environ", "numbers"),
    [
        ({}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "1,7"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bb"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "nonsense"}, [0, 1, 2]),
    ],
)
def test_gpus_that_a_process_sees(environ: dict[str, str], numbers: list[int]) -> None:
    gpus = [gpu(uuid="GPU-aa"), gpu(uuid="GPU-bb11"), gpu(uuid="GPU-cc")]
    assert [index for index, _ in visible(gpus, Machine(environ))] == numbers


def test_numbers_of_different_gpus_mean_what_cuda_takes_them_for() -> None:
    gpus = [gpu("NVIDIA L4"), gpu("NVIDIA H200")]
    assert len(visible(gpus, Machine({"CUDA_VISIBLE_DEVICES": "0"}))) == 2
    assert len(visible(gpus, Machine({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}))) == 1


def test_nvml_document() -> None:
    document = {
        "nvml": {"driver": "580.159.04", "cuda": 13000, "gpus": [gpu("NVIDIA H200", cc="9.0"), gpu()]},
        "state": [],
    }
    facts = told(nvml_facts(document, "", Machine({})))
    assert (facts["driver.version"], facts["driver.cuda"]) == ("580.159.04", "13.0")
    assert (facts["gpu.count"], facts["gpu.cc"], facts["gpu.memory_gib"]) == (2, "8.9", 22.49)
    assert facts["gpu.free_gib"] == ["1.00", "1.00"]


def test_nvml_without_memory_falls_back_to_the_table() -> None:
    board = {"name": "NVIDIA GB10", "cc": "12.1", "memory": None, "free": None}
    facts = told(nvml_facts({"nvml": {"driver": "580", "cuda": 12080, "gpus": [board]}}, "", Machine({})))
    assert (facts["gpu.unified"], facts["gpu.memory_gib"], facts["driver.cuda"]) == (True, 119.7, "12.8")
    assert "gpu.free_gib" not in facts


@pytest.mark.parametrize(
    ("document", "check"),
    [
        ({"nvml": {"error": 999, "text": "Unknown Error"}}, "NVIDIA driver and GPUs"),
        ({}, "NVIDIA driver and GPUs"),
        ({"nvml": {"driver": "580.1", "gpus": []}}, "GPUs"),
    ],
)
def test_nvml_without_gpus_is_unknown(document: dict[str, object], check: str) -> None:
    items = list(nvml_facts(document, "", Machine({})))
    assert missing(items) == [check]
    assert not any(key.startswith("gpu.") for key in told(items))


def test_another_makers_gpu_is_named_in_the_reason(tmp_path: Path) -> None:
    device = "/sys/bus/pci/devices/0000:83:00.0"
    machine = made(
        tmp_path, {f"{device}/class": "0x120000", f"{device}/vendor": "0x1002\n", f"{device}/device": "0x74a1\n"}
    )
    seen = {f.key: f for f in driver_file_facts(machine)}
    items = list(nvml_facts({"nvml": {"error": 12, "text": "not found"}}, "", machine, seen))
    (unknown,) = [i for i in items if isinstance(i, Unknown)]
    assert "GPUs of amd" in unknown.needs


@given(
    st.dictionaries(st.sampled_from(["/proc/meminfo", "/proc/self/mountinfo", "/proc/self/cgroup", "/proc/self/limits",
        "/proc/self/status", "/proc/self/net/tcp", "/proc/sys/kernel/osrelease", "/proc/1/cgroup", "/etc/os-release",
        "/usr/local/cuda/version.json", "/proc/driver/nvidia/version", "/sys/bus/pci/devices/x/class"]), st.text(max_size=60)),
    st.dictionaries(st.sampled_from(["HOME", "HF_HOME", "PATH", "CUDA_HOME", "LD_LIBRARY_PATH", "CC", "CUDA_VISIBLE_DEVICES"]),
        st.text(st.characters(exclude_characters="\0"), max_size=30)),
    st.sampled_from(["linux", "win32", "darwin"]),
)  # fmt: skip
def test_no_file_and_no_variable_makes_a_collector_raise(
    files: dict[str, str], environ: dict[str, str], platform: str
) -> None:
    class Told(Machine):
        def head(self, place: str, size: int = 65536) -> str:
            return files.get(place, "")

    machine = Told(environ, Path("/nowhere/at/all"), platform=platform, arch="x86_64")
    python = Interpreter("3.12.3", (), "python", "/v", "/usr")
    collectors = (system_facts, wsl_facts, container_facts, memory_facts, network_facts, toolkit_facts, library_facts,
        disk_facts, hub_facts, variable_facts, driver_file_facts)  # fmt: skip
    facts = [i for collect in collectors for i in collect(machine) if isinstance(i, Fact)]
    Facts([*facts, *python_facts(python, machine)])
