"""Files of the run directory, and counters on their way to /metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybridctl.runtime.vllm_plugin import proof
from hybridctl.runtime.vllm_plugin.counters import Counters


def test_each_process_writes_its_own_file_whole(plugin_on: Path) -> None:
    proof.write_registered("0.32.0", {}, [])
    proof.write_layers(1, {"layers": {"a": {"backend": "B"}}})
    files = {p.name: json.loads(p.read_text(encoding="utf-8")) for p in plugin_on.iterdir()}
    pid = os.getpid()
    assert set(files) == {f"registered-{pid}.json", f"layers-1-{pid}.json"}
    assert all(f["pid"] == pid and f["schema_version"] == 1 and f["process"] for f in files.values())
    assert files[f"layers-1-{pid}.json"]["role"] == "worker"


def test_without_a_run_directory_nothing_is_written(monkeypatch: pytest.MonkeyPatch, plugin_on: Path) -> None:
    monkeypatch.delenv(proof.RUN_DIR)
    proof.write_registered("0.32.0", {}, [])
    assert not plugin_on.exists()


def test_a_run_directory_that_cannot_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    monkeypatch.setenv(proof.RUN_DIR, str(blocked))
    with pytest.raises(OSError, match="file"):
        proof.write_registered("0.32.0", {}, [])


def test_counters_count_and_stay_quiet_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    counters = Counters()
    counters.publish = True
    counters.add("flash", 3)
    counters.add("flash", 4)
    counters.flush()
    assert counters.counts == {"flash": 7, "linear": 0, "absorb": 0}


def test_counters_reach_the_files_of_prometheus(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    code = """
from hybridctl.runtime.vllm_plugin.counters import Counters
c = Counters()
c.add("linear", 5); c.flush()                  # not the one that publishes yet
c.publish = True
c.flush(); c.add("linear", 2); c.add("flash", 1); c.flush(); c.flush()
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
r = CollectorRegistry(); multiprocess.MultiProcessCollector(r)
print(generate_latest(r).decode())
"""
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert 'hybridctl_kernel_tokens_total{kernel="linear"} 7.0' in done.stdout
    assert 'hybridctl_kernel_tokens_total{kernel="flash"} 1.0' in done.stdout


def test_the_plugin_is_inert_unless_switched_on(monkeypatch: pytest.MonkeyPatch, plugin_on: Path) -> None:
    code = "import sys; from hybridctl.runtime.vllm_plugin.plugin import register; register(); print(*sys.modules)"
    env = {**os.environ, "HYBRIDCTL_PLUGIN": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert not {"vllm", "torch"} & {name.partition(".")[0] for name in done.stdout.split()}
    assert not plugin_on.exists()
