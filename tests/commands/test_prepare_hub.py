"""prepare from a hub: the real huggingface_hub client in processes of its own, against a small hub on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_checkpoints import qwen3, qwen4, world
from fake_hub import COMMIT, Hub

from hybridctl import overlays
from hybridctl.errors import UsageError
from hybridctl.patchers import download, source

pytestmark = pytest.mark.slow
Start = Callable[..., Hub]


@pytest.fixture
def start() -> Iterator[Start]:
    hubs: list[Hub] = []

    def starting(files: dict[str, bytes], fault: str = "") -> Hub:
        hubs.append(Hub(files, fault))
        return hubs[-1]

    yield starting
    for hub in hubs:
        hub.close()


def environment(root: Path, hub: Hub | None, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "VLLM", "HYBRIDCTL"))}
    ours = {
        "HF_HOME": str(root / "hf"),
        "HYBRIDCTL_HOME": str(root / "home"),
        "NO_PROXY": "127.0.0.1",
        "HF_TOKEN": "hf_test",
    }
    return {**kept, **ours, "HF_ENDPOINT": hub.address if hub else "http://127.0.0.1:9", "COLUMNS": "400", **more}


def prepare(root: Path, hub: Hub | None, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "hybridctl", "prepare", *(words or ("a/m",)), "--vllm", "0.30.0"]
    return subprocess.run(
        argv, capture_output=True, text=True, env=environment(root, hub, **more), timeout=240, check=False
    )


def folder(root: Path) -> Path:
    return root / "home" / "share" / "overlays" / "m"


def holds(root: Path, files: dict[str, bytes]) -> None:
    """The overlay is whole, and only its config.json differs."""
    found = overlays.look(folder(root))
    assert found.problem == "" and found.manifest is not None
    assert (found.manifest.model, found.manifest.revision) == ("a/m", COMMIT)
    for name, data in files.items():
        if name != "config.json":
            assert (folder(root) / name).read_bytes() == data
    config = json.loads((folder(root) / "config.json").read_text())
    assert config["text_config"]["layer_types"][3] == "full_attention"


def test_shards_are_downloaded_once_and_the_cache_stays_as_the_client_left_it(start: Start, tmp_path: Path) -> None:
    files = qwen4()
    hub = start(files)
    dry = prepare(tmp_path, hub, "a/m", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert not (tmp_path / "hf").exists() and not (tmp_path / "home" / "share").exists()
    made = prepare(tmp_path, hub)
    assert made.returncode == 0, made.stderr
    holds(tmp_path, files)
    assert str(tmp_path / "hf" / "hub" / "models--a--m") in made.stdout  # mounted beside the overlay
    before = world(tmp_path, but=("home/cache",))
    sent = hub.sent
    again = prepare(tmp_path, hub)
    assert again.returncode == 0 and "unchanged" in again.stdout
    offline = prepare(tmp_path, None, HF_HUB_OFFLINE="1")
    assert offline.returncode == 0 and "unchanged" in offline.stdout, offline.stderr
    gone = prepare(tmp_path, None)
    assert gone.returncode == 0 and "taken from the cache" in gone.stdout, gone.stderr
    assert world(tmp_path, but=("home/cache",)) == before
    assert (
        hub.sent - sent < sum(map(len, files.values())) + 10_000
    )  # headers (of files this small: all), and nothing more
    cache = world(tmp_path / "hf")
    assert prepare(tmp_path, hub, "a/m", "--undo").returncode == 0
    assert world(tmp_path / "hf") == cache and not folder(tmp_path).exists()


@pytest.mark.parametrize("fault", ["busy-once", "drop-once"])
def test_faults_that_pass(start: Start, tmp_path: Path, fault: str) -> None:
    files = qwen4(2, 200_000)
    made = prepare(tmp_path, start(files, fault))
    assert made.returncode == 0, made.stderr
    holds(tmp_path, files)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("gated", "gated; accept its licence"),
        ("unauthorised", "no such repository, or it is private"),
        ("busy", "too many requests (429)"),
        ("etag", "the hub lists the digest"),
    ],
)
def test_faults_that_stay(start: Start, tmp_path: Path, fault: str, words: str) -> None:
    made = prepare(tmp_path, start(qwen4(2), fault))
    assert made.returncode in (2, 3) and words in made.stderr, made.stderr
    assert "Traceback" not in made.stderr and not folder(tmp_path).exists()
    assert overlays.MANIFEST not in str(world(tmp_path / "home", but=("home/cache",)))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({**qwen3(), "../../x.json": b"{}"}, "'../../x.json', which is no path within it"),
        ({**qwen3(), "/etc/x.json": b"{}"}, "'/etc/x.json'"),
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "pickle files"),
        ({**qwen3(), "config.json": b"[" * 70_000}, "nested"),
        ({**qwen3(), "model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"}, "LFS pointer"),
        ({**qwen3(), "model.safetensors": b"\xff" * 8 + b"{}"}, "is not possible"),
    ],
)
def test_hostile_repositories(start: Start, tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    made = prepare(tmp_path, start(files))
    assert made.returncode in (2, 3) and words in made.stderr, made.stderr
    assert not (tmp_path / "hf").exists() and not (tmp_path / "home/share").exists()


def test_nothing_in_the_cache_and_no_hub(tmp_path: Path) -> None:
    made = prepare(tmp_path, None, HF_HUB_OFFLINE="1")
    assert made.returncode == 2 and "not in the cache" in made.stderr


def test_modelscope_is_asked_for_and_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setenv("VLLM_USE_MODELSCOPE", "true")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "modelscope" else found(name))
    with pytest.raises(UsageError, match="no package modelscope here") as raised:
        source.find("a/m")
    assert raised.value.hint == "pip install modelscope"


def test_a_disk_that_is_too_small(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    hub = start(qwen4(2))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    found = source.find("a/m")
    needed = sum(file.size for file in found.missing)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed))
    download.check_disk(found, tmp_path / "o", "link")
    with pytest.raises(UsageError, match="are needed; nothing was downloaded"):
        download.check_disk(found, tmp_path / "o", "copy")  # both on one disk
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed - 1))
    with pytest.raises(UsageError, match="the hub's cache"):
        download.check_disk(found, tmp_path / "o", "link")


def test_killed_at_random_points_it_goes_on_with_what_is_missing(start: Start, tmp_path: Path) -> None:
    files = qwen4(6, 100_000)
    hub = start(files, "slow")
    kills, rng = 0, random.Random(5)
    argv = [sys.executable, "-m", "hybridctl", "prepare", "a/m", "--vllm", "0.30.0"]
    blobs = tmp_path / "hf" / "hub" / "models--a--m" / "blobs"
    for _ in range(10):
        running = subprocess.Popen(
            argv, env=environment(tmp_path, hub), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        begun, asked = time.monotonic(), len(hub.asked)
        while not any("/cdn/" in p and not r for _, p, r in hub.asked[asked:]) and running.poll() is None:
            if time.monotonic() - begun > 60:
                break
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.6))
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
            kills += 1
        running.wait(60)
        assert all(o.problem == "" for o in _listing(tmp_path))
        if folder(tmp_path).exists():
            break
    assert kills >= 3
    whole = {p.name for p in blobs.iterdir() if "incomplete" not in p.name} if blobs.exists() else set()
    hub.fault, hub.asked = "", []
    made = prepare(tmp_path, hub)
    assert made.returncode == 0, made.stderr
    holds(tmp_path, files)
    again = {p.rpartition("/")[2] for _, p, r in hub.asked if "/cdn/" in p and not r}
    kept = {name for name in files if name.endswith(".safetensors") and hub.etag(name) in whole}
    assert not again & kept  # what was whole is not fetched again


def _listing(root: Path) -> list[overlays.Prepared]:
    place = folder(root).parent
    return [overlays.look(p) for p in place.iterdir() if not p.name.startswith(".")] if place.is_dir() else []
