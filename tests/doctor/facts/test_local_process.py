"""A server that runs: from recorded ``/proc`` folders, and from a process that the test starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybridctl.doctor.facts import collect_local
from hybridctl.doctor.facts.child import ChildError
from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_process import find_server, interpreter_of, server_facts
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.findings import Unknown
from hybridctl.errors import UsageError

pytestmark = pytest.mark.lifecycle

SERVE = ["/v/bin/python3", "/v/bin/vllm", "serve", "Qwen/Qwen3-8B", "--port", "8123"]
ENGINE = ["VLLM::EngineCore"]
SPAWN = ["/v/bin/python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"]


def machine(root: Path, processes: dict[int, tuple[int, list[str]]], environ: dict[int, str] | None = None) -> Machine:
    """``{pid: (parent, arguments)}`` as a recorded ``/proc``."""
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/mnt").symlink_to("mnt:[1]")
    for pid, (parent, words) in processes.items():
        folder = root / "proc" / str(pid)
        (folder / "ns").mkdir(parents=True)
        (folder / "ns/mnt").symlink_to("mnt:[1]")
        (folder / "status").write_text(f"Name:\tx\nPid:\t{pid}\nPPid:\t{parent}\n")
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in words))
        (folder / "environ").write_text((environ or {}).get(pid, ""))
    return Machine({"PATH": "/mine"}, root, platform="linux", arch="x86_64", libc="glibc 2.36")


@pytest.mark.parametrize("asked", [10, 20, 30, 31])
def test_launcher_server_and_workers_all_lead_to_the_server(tmp_path: Path, asked: int) -> None:
    processes = {
        1: (0, ["/sbin/init"]),
        10: (1, ["docker-init", "--", *SERVE]),
        20: (10, SERVE),
        30: (20, ENGINE),
        31: (30, SPAWN),
        40: (1, ["/usr/bin/postgres"]),
    }
    server = find_server(asked, machine(tmp_path, processes))
    assert (server.pid, server.asked) == (20, asked)
    facts = {i.key: i for i in server_facts(server) if isinstance(i, Fact)}
    assert facts["flag.port"].value == 8123
    assert facts["model.name"].value == "Qwen/Qwen3-8B"
    assert ("belongs" in facts["process.pid"].origin.quote) == (asked != 20)


def test_a_shell_that_started_it(tmp_path: Path) -> None:
    line = "vllm serve Qwen/Qwen3-8B --port 8123"
    server = find_server(
        7, machine(tmp_path, {7: (1, ["/bin/sh", "start.sh"]), 8: (7, ["sh", "-c", line]), 9: (8, SERVE)})
    )
    assert server.pid == 9


def test_of_several_servers_none_is_guessed(tmp_path: Path) -> None:
    there = machine(tmp_path, {1: (0, ["/sbin/init"]), 8: (1, SERVE), 9: (8, [*SERVE, "--again"]), 12: (1, SERVE)})
    with pytest.raises(UsageError, match="several servers: 8, 12"):
        find_server(1, there)
    assert find_server(12, there).pid == 12


@pytest.mark.parametrize(
    ("asked", "words", "says"),
    [
        (99, ["/usr/bin/postgres"], "there is no process 99"),
        (5, ["/usr/bin/postgres", "-D", "/db"], "is no server of a known engine"),
        (5, [], "a kernel thread"),
        (5, ["/v/bin/hybridctl", "doctor", "--command", "vllm serve x"], "is no server"),
    ],
)
def test_what_is_no_server_is_said(tmp_path: Path, asked: int, words: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find_server(asked, machine(tmp_path, {1: (0, ["/sbin/init"]), 5: (1, words)}))
    with pytest.raises(UsageError, match="needs the /proc folder"):
        find_server(5, Machine({}, tmp_path / "nothing"))


def test_its_variables_count_and_secrets_do_not_show(tmp_path: Path) -> None:
    words = [*SERVE, "--api-key", "sk-abcdefghijklmnopqrstuvwx"]
    environ = "VLLM_USE_V1=1\0HF_TOKEN=hf_abcdefghijklmnopqrst\0HOME=/home/x\0CUDA_VISIBLE_DEVICES=3\0"
    server = find_server(5, machine(tmp_path, {5: (1, words)}, {5: environ}))
    assert server.machine.environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert "sk-abc" not in server.launch
    assert "sk-abc" not in str(list(server_facts(server)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything") if hasattr(os, "geteuid") else lambda f: f
def test_variables_of_another_user_are_closed(tmp_path: Path) -> None:
    there = machine(tmp_path, {5: (1, SERVE)}, {5: "A=1\0"})
    (tmp_path / "proc/5/environ").chmod(0)
    server = find_server(5, there)
    assert "permission" in server.closed


def test_closed_variables_are_unknown_and_so_is_what_follows_from_them(tmp_path: Path) -> None:
    there = machine(tmp_path, {5: (1, SERVE)})
    (tmp_path / "proc/5/environ").unlink()
    (tmp_path / "proc/5/environ").mkdir()  # can't be read, whoever asks
    facts, unknown = collect_local(pid=5, machine=there, driver=lambda: ([], "not asked"))
    assert "variables of process 5" in {u.check for u in unknown}
    assert facts.value("flag.port") == 8123
    for key in ("hub.token", "disk.cache", "cuda.nvcc", "python.compiler"):
        assert not facts.has(key)


def test_a_container_shows_its_own_files(tmp_path: Path) -> None:
    there = machine(tmp_path, {5: (1, SERVE)}, {5: "HOME=/root\0"})
    (tmp_path / "proc/5/ns/mnt").unlink()
    (tmp_path / "proc/5/ns/mnt").symlink_to("mnt:[2]")
    site = tmp_path / "proc/5/root/usr/local/lib/python3.12/dist-packages"
    (site / "vllm-0.33.0.dist-info").mkdir(parents=True)
    (tmp_path / "proc/5/root/.dockerenv").write_text("")
    (tmp_path / "proc/5/maps").write_text(
        "7f00-7f01 r--p 0 00:2a 1 /usr/local/lib/python3.12/dist-packages/torch/lib/libtorch.so\n"
        "7f02-7f03 r--p 0 00:2a 2 /usr/lib/x86_64-linux-gnu/libc.so.6\n"
    )
    (tmp_path / "proc/5/limits").write_text("Max locked memory  8388608 8388608 bytes\n")
    server = find_server(5, there)
    assert server.foreign
    assert interpreter_of(server).path == (str(site),)
    facts, _ = collect_local(pid=5, machine=there, driver=lambda: ([], "not asked"))
    assert facts.value("pkg.vllm") == "0.33.0"
    assert facts.value("platform.container") is True
    assert facts.value("platform.memlock_gib") == 0.007812  # from the machine's /proc, not from the container's
    assert not facts.has("platform.glibc")  # ours says nothing of the container's


def test_a_program_of_another_user_is_never_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = tmp_path / "v/bin/python3"
    trap.parent.mkdir(parents=True)
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    trap.chmod(0o755)
    words = [str(trap), *SERVE[1:]]
    server = find_server(5, machine(tmp_path, {5: (1, words)}))
    with pytest.raises(ChildError):
        interpreter_of(server)
    assert (tmp_path / "started").exists()
    (tmp_path / "started").unlink()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ChildError, match="belongs to another user"):
        interpreter_of(server)
    assert not (tmp_path / "started").exists()


# --- a process of our own


@pytest.fixture
def running(tmp_path: Path) -> Iterator[int]:
    """A process whose command line is that of a server."""
    script = tmp_path / "vllm"
    script.write_text("import time\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [sys.executable, str(script), "serve", "Qwen/Qwen3-8B", "--max-model-len", "4096"],
        env={**os.environ, "VLLM_USE_V1": "1", "HF_TOKEN": "hf_abcdefghijklmnopqrst"},
    )
    try:
        for _ in range(100):
            if b"serve" in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                break
            time.sleep(0.02)
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_real_process(running: int) -> None:
    facts, unknown = collect_local(pid=running, driver=lambda: ([], "not asked"))
    assert facts.value("process.pid") == running
    assert facts.value("flag.max-model-len") == 4096
    assert facts.value("env.VLLM_USE_V1") == "1"
    assert facts.value("hub.token") is True
    assert "hf_abc" not in str(facts.to_json())
    assert facts.value("platform.python") == ".".join(map(str, sys.version_info[:3]))
    assert facts.has("pkg.packaging")
    assert [u.check for u in unknown if isinstance(u, Unknown)] == ["NVIDIA driver and GPUs"]
