"""``hybridctl serve`` as a user meets it, on a stand-in for vLLM: ready, not ready, and every way to end."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fake_vllm import free_port, make_environment, marked, serving, wait_for

from hybridctl.runtime import checkpoint

pytestmark = [
    pytest.mark.lifecycle,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, as vLLM's machines have it"),
]


def shared_by(pid: int) -> list[Path]:
    """Shared memory of vLLM that a process holds."""
    return [p.resolve() for p in Path(f"/proc/{pid}/fd").glob("*") if "/dev/shm/vllm_dist_" in str(p.resolve())]


def run(*arguments: str, home: Path, **changed: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "hybridctl", "serve", *arguments]
    env = {**os.environ, "HYBRIDCTL_HOME": str(home), "HF_HUB_OFFLINE": "1", **changed}
    return subprocess.run(line, capture_output=True, text=True, env=env, timeout=60, check=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_server_that_is_ready_ends_in_order(tmp_path: Path, number: int) -> None:
    with serving(tmp_path) as server:
        server.until("hybridctl verify")
        assert "yes: 4 layers in 1 worker" in server.out
        assert f"curl http://localhost:{server.port}/generate" in server.out
        assert "routing by position" in server.out
        assert "reading the configuration" in server.err
        assert "[HYBRID] routing by position" in server.err
        assert "(EngineCore" not in server.err
        (folder,) = server.runs
        assert {"proof", "metrics", "model", "run.json", "server.log"} == {p.name for p in folder.iterdir()}
        overlay = json.loads((folder / "model" / "config.json").read_text())
        assert overlay["architectures"] == ["HybridCtlQwen3ForCausalLM"]
        assert (folder / "model" / "model.safetensors").is_symlink()
        assert len(server.alive) >= 4  # serve, guard, server, worker
        assert wait_for(lambda: any(shared_by(pid) for pid in server.alive))
        shared = {path for pid in server.alive for path in shared_by(pid)}
        assert server.end(number) == 0
        assert server.alive == []
        assert server.runs == []
        assert not any(path.exists() for path in shared)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_end_before_it_is_ready(tmp_path: Path, number: int, code: int) -> None:
    with serving(tmp_path, mode="silent") as server:
        server.until("loading weights")
        assert server.end(number) == code
        assert (server.alive, server.runs) == ([], [])


def test_a_signal_that_vllm_swallows_while_it_starts_is_sent_again(tmp_path: Path) -> None:
    with serving(tmp_path, mode="swallow") as server:
        server.until("loading weights")
        assert server.end(signal.SIGTERM, 20) == 143  # long before the 30 s that a server gets to end its requests
        assert (server.left, server.runs) == ([], [])


@pytest.mark.parametrize(("mode", "text", "code"), [("ready", b"hybridctl verify", 0), ("silent", b"loading", 129)])
def test_a_terminal_that_is_closed(tmp_path: Path, mode: str, text: bytes, code: int) -> None:
    python, mark = make_environment(tmp_path), tmp_path.name
    env = {**os.environ, "FAKE_MODE": mode, "MARK": mark, "HYBRIDCTL_HOME": str(tmp_path / "home"), "TERM": "xterm"}
    line = ["-m", "hybridctl", "serve", "--demo", "--python", str(python), "--port", str(free_port())]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, *line], env)
    shown = b""
    while text not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)  # the kernel sends SIGHUP, and everything written from now on fails
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    assert marked(mark) == []
    assert list((tmp_path / "home" / "state" / "runs").iterdir()) == []


def test_asked_twice_it_does_not_wait(tmp_path: Path) -> None:
    with serving(tmp_path, mode="deaf") as server:
        server.until("hybridctl verify")
        server.process.send_signal(signal.SIGINT)
        assert not wait_for(lambda: server.process.poll() is not None, 2)
        assert server.end(signal.SIGINT, 10) == 137
        assert server.alive == []


def test_killed_it_leaves_no_process_and_status_clears_the_rest(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.until("hybridctl verify")
        server.end(signal.SIGKILL)
        assert wait_for(lambda: server.alive == [])
        (folder,) = server.runs
        done = run("--status", "--json", home=server.home)
        assert json.loads(done.stdout)["removed"] == [str(folder)]
        assert server.runs == []


def test_a_killed_guard_takes_everything_with_it(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.until("hybridctl verify")
        guard = next(pid for pid in server.alive if b"guard.py" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(guard, signal.SIGKILL)
        assert server.end() == 137
        assert "by itself with exit code 137 while serving: SIGKILL, from outside" in server.err
        assert server.left == []


def test_status_lists_a_running_server(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.until("hybridctl verify")
        document = json.loads(run("--status", "--json", home=server.home).stdout)
        assert [r["state"] for r in document["running"]] == ["ready"]
        assert document["running"][0]["url"] == f"http://127.0.0.1:{server.port}"
        assert f"pid {server.process.pid}" in run("--status", home=server.home).stdout
        assert len(server.runs) == 1


def test_a_crash_is_told_in_one_finding_and_its_log_kept(tmp_path: Path) -> None:
    with serving(tmp_path, mode="crash") as server:
        assert server.end() == 1
        assert "exceeds available Mamba cache blocks" in server.err
        assert "1. ERROR" in server.out
        assert "2. ERROR" not in server.out
        assert (server.alive, len(server.runs)) == ([], 1)
        assert {p.name for p in server.runs[0].iterdir()} == {"run.json", "server.log"}
        listed = run("--status", home=server.home).stdout
        assert "failed" in listed and "Mamba" in listed


def test_an_end_while_serving_is_a_failure(tmp_path: Path) -> None:
    with serving(tmp_path, mode="late-crash") as server:
        server.until("hybridctl verify")
        assert server.end() == 1
        assert "by itself with exit code 1 while serving" in server.err
        assert server.alive == []


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        ("no-proof", "has not loaded the plugin; the worker of rank 0 holds no routed model"),
        ("bad-plugin", "cannot import name 'gone' from 'vllm'"),
        ("no-completion", "/health is fine, but a completion fails: 500: EngineCore encountered an issue"),
        (
            "hung-completion",
            "an exception in one worker, and vLLM waits for it. vLLM's log says why: RuntimeError: rank 1 has",
        ),
        ("no-completion", "vLLM's log says why: RuntimeError: rank 1 has no such kernel"),
    ],
)
def test_healthy_is_not_ready(tmp_path: Path, mode: str, line: str) -> None:
    with serving(tmp_path, mode=mode) as server:
        assert server.end() == 3
        assert line in server.err
        assert "Ready" not in server.out
        assert server.alive == []


def test_a_plugin_that_fails_to_import_is_named_as_the_cause(tmp_path: Path) -> None:
    with serving(tmp_path, mode="unknown-name") as server:
        assert server.end() == 1
        assert "could not load hybridctl's plugin: ImportError: cannot import name 'gone' from 'vllm'" in server.err
        assert "ERROR" not in server.out


def test_a_plugin_of_ours_that_vllm_goes_on_without(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo", "--no-hybrid", mode="bad-endpoint") as server:
        assert server.end() == 3
        assert "POST /generate is missing. vLLM's log says why: ImportError: cannot import name 'gone'" in server.err
        assert server.left == []


def test_a_plugin_of_somebody_else_that_vllm_goes_on_without(tmp_path: Path) -> None:
    with serving(tmp_path, mode="other-plugin") as server:
        server.until("hybridctl verify")
        assert (
            "vLLM goes on without the plugin special: ImportError: cannot import name 'gone' from 'vllm'" in server.err
        )
        assert server.end(signal.SIGTERM) == 0


def test_a_foreign_server_on_the_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    class Foreign(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    asked: list[str] = []
    with serving(tmp_path, "--demo", "--start-timeout", "6", mode="portless") as server:
        server.until("loading weights")
        foreign = ThreadingHTTPServer(("127.0.0.1", server.port), Foreign)
        threading.Thread(target=foreign.serve_forever, daemon=True).start()
        assert server.end() == 3
        foreign.shutdown()
        foreign.server_close()
    assert set(asked) == {"/health"}
    assert "not ready after 6 s" in server.err


def test_every_rank_must_prove_itself(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo", "--tensor-parallel-size", "2") as server:
        assert server.end() == 3
        assert "the worker of rank 1 holds no routed model" in server.err
        assert "rank 0" not in server.err


def test_a_start_that_never_ends(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo", "--start-timeout", "2", mode="silent") as server:
        assert server.end() == 3
        assert "not ready after 2 s, while loading weights" in server.err
        assert server.alive == []


def test_without_the_dispatcher_no_proof_is_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo", "--no-hybrid", mode="no-proof") as server:
        server.until("/v1/completions")
        assert "no (--no-hybrid)" in server.out
        overlay = json.loads((server.runs[0] / "model" / "config.json").read_text())
        assert overlay["architectures"] == ["Qwen3ForCausalLM"]  # a copy without the tensors that vLLM does not know
        assert server.end(signal.SIGTERM) == 0


def test_a_full_disk_costs_the_log_and_not_the_server(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo", "--log-file", "/dev/full") as server:
        server.until("hybridctl verify")
        assert "the log is not written any more: /dev/full: No space left on device" in server.err
        assert server.end(signal.SIGTERM) == 0
        assert server.alive == []


def test_nowhere_to_write_what_it_says(tmp_path: Path) -> None:
    with serving(tmp_path, errors=Path("/dev/full")) as server:
        server.until("hybridctl verify")
        assert server.end(signal.SIGTERM) == 0
        assert (server.left, server.runs) == ([], [])


def test_a_disk_that_fills_up_while_it_starts(tmp_path: Path) -> None:
    with serving(tmp_path, mode="no-completion") as server:
        assert wait_for(lambda: server.runs and (server.runs[0] / "run.json").exists())
        (server.runs[0] / ".run.json").symlink_to("/dev/full")
        assert server.end() == 3
        assert server.runs == []  # not even the reason can be kept
    with serving(tmp_path) as server:
        server.until("loading weights")
        (server.runs[0] / ".run.json").symlink_to("/dev/full")
        server.until("hybridctl verify")
        assert "No space left on device; the server goes on" in server.err
        assert server.end(signal.SIGTERM) == 0
        assert (server.left, server.runs) == ([], [])


def test_no_place_for_a_run_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with serving(tmp_path, HYBRIDCTL_HOME=str(tmp_path / "file")) as server:
        assert server.end() == 3
        assert "can't make a run directory" in server.err
        assert server.alive == []


def test_port_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("--demo", "--python", str(make_environment(tmp_path)), "--port", str(port), home=tmp_path / "home")
    assert done.returncode == 2
    assert f"port {port} of 127.0.0.1 can't be used: Address already in use" in done.stderr
    assert not (tmp_path / "home" / "state").exists()


def test_model_path_gone(tmp_path: Path) -> None:
    done = run(str(tmp_path / "gone"), home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no model folder" in done.stderr
    (tmp_path / "empty").mkdir()
    done = run(str(tmp_path / "empty"), home=tmp_path)
    assert done.returncode == 2
    assert "config.json: No such file" in done.stderr


def test_weights_that_are_damaged_or_cut_off(tmp_path: Path) -> None:
    python = make_environment(tmp_path)
    model = tmp_path / "model"
    shutil.copytree(Path(checkpoint.demo().location), model)
    weights = model / "model.safetensors"
    whole = weights.read_bytes()
    for data, line in {
        whole[: len(whole) * 2 // 3]: "it is cut off",
        os.urandom(4096): "model.safetensors: a header of",
        b"version https://git-lfs.github.com/spec/v1\n": "a Git LFS pointer, not the weights",
        b"": "0 bytes are no safetensors file",
    }.items():
        weights.write_bytes(data)
        done = run(str(model), "--python", str(python), home=tmp_path / "home")
        assert done.returncode == 2
        assert line in done.stderr
    assert not (tmp_path / "home" / "state").exists()


def test_a_model_that_goes_while_it_starts(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(Path(checkpoint.demo().location), model)
    with serving(tmp_path, str(model), mode="crash") as server:
        assert wait_for(lambda: server.runs and (server.runs[0] / "model" / "config.json").exists())
        shutil.rmtree(model)
        assert server.end() == 1
        assert f"exit code 1 while loading weights: {model} is gone" in server.err


def test_a_misspelt_name_in_vllm_plugins(tmp_path: Path) -> None:
    python = str(make_environment(tmp_path))
    for names, line in {
        "hybridclt": "VLLM_PLUGINS names 'hybridclt', and no package in",
        "special,speciall": "did you mean 'special'?",
        "nothing_alike": "there are: hybridctl, other_routes, special",
    }.items():
        done = run("--demo", "--python", python, home=tmp_path, VLLM_PLUGINS=names)
        assert done.returncode == 2
        assert line in done.stderr
    assert run("--demo", "--python", python, "--print", home=tmp_path, VLLM_PLUGINS="special,").returncode == 0


def test_no_model(tmp_path: Path) -> None:
    done = run(home=tmp_path)
    assert done.returncode == 2
    assert "hybridctl serve --demo" in done.stderr


def test_print_gives_every_flag_its_reason_and_starts_nothing(tmp_path: Path) -> None:
    python = str(make_environment(tmp_path))
    arguments = (
        "--demo",
        "--python",
        python,
        "--print",
        "--dtype",
        "half",
        "--hybrid-enabled",
        "--enable-chunked-prefill",
    )
    done = run(*arguments, "--json", "--", "--seed", "3", home=tmp_path / "home")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert all(row["reason"] for row in document["flags"] + document["environment"])
    assert document["argv"][:4] == [python, "-m", "vllm.entrypoints.openai.api_server", "--model"]
    assert document["argv"][-2:] == ["--seed", "3"]
    assert {"--dtype", "half", "--enable-chunked-prefill"} <= set(document["argv"])
    assert "--hybrid-enabled" not in document["argv"]
    plugins = next(row["value"] for row in document["environment"] if row["name"] == "VLLM_PLUGINS")
    assert plugins == "hybridctl,special"  # routes of others stay off, as without the variable
    assert not (tmp_path / "home" / "state").exists()
    assert "switches the plugin on" in run(*arguments, home=tmp_path / "home").stdout


def test_a_vllm_outside_the_window_or_without_the_plugin(tmp_path: Path) -> None:
    old = make_environment(tmp_path / "old", version="0.29.0")
    done = run("--demo", "--python", str(old), home=tmp_path)
    assert done.returncode == 2
    assert "vLLM 0.29.0" in done.stderr
    bare = make_environment(tmp_path / "bare", entry_points="")
    done = run("--demo", "--python", str(bare), home=tmp_path)
    assert done.returncode == 2
    assert "hybridctl is not installed in" in done.stderr


def routed_model(folder: Path, routing: dict[str, object]) -> Path:
    model = folder / "model"
    model.mkdir()
    shape = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "hidden_size": 128}
    document = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **shape, "hybrid_config": routing}
    (model / "config.json").write_text(json.dumps(document))
    return model


@pytest.mark.parametrize(
    ("rule", "extra", "added"),
    [
        ({"route_by": "prompt_length"}, (), {"--no-enable-chunked-prefill", "--no-enable-prefix-caching"}),
        ({"batch_policy": "uniform"}, ("--no-enable-prefix-caching",), {"--no-enable-chunked-prefill"}),
        (
            {"batch_policy": "uniform"},
            ("--enable-chunked-prefill",),
            {"--no-enable-prefix-caching"},
        ),  # the plugin will say no
        ({}, (), set()),
    ],
)
def test_a_routing_by_value_is_served_without_what_it_cannot_have(
    tmp_path: Path, rule: dict[str, str], extra: tuple[str, ...], added: set[str]
) -> None:
    python = make_environment(tmp_path)
    model = routed_model(tmp_path, {"thresholds": {"flash": 64, "linear": 64}, **rule})
    done = run(str(model), "--python", str(python), "--print", "--json", "--", *extra, home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    flags = json.loads(done.stdout)["flags"]
    ours = {row["name"] for row in flags if row["name"].startswith("--no-enable") and "hybrid_config" in row["reason"]}
    assert ours == added


def test_a_routing_that_is_wrong(tmp_path: Path) -> None:
    python = make_environment(tmp_path)
    model = routed_model(tmp_path, {"thresholds": {"flash": 128, "linear": 64}})
    done = run(str(model), "--python", str(python), home=tmp_path)
    assert done.returncode == 2
    assert "hybrid_config.thresholds.linear" in done.stderr
