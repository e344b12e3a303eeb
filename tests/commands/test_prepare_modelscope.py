"""prepare from ModelScope, as vLLM does it with VLLM_USE_MODELSCOPE: its real client, against a small server on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_checkpoints import qwen4, world
from fake_modelscope import ModelScope

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("modelscope") is None, reason="needs ModelScope's client"),
]
FILES = qwen4()


@pytest.fixture
def place() -> Iterator[ModelScope]:
    made = ModelScope(FILES)
    yield made
    made.close()


def prepare(root: Path, address: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "MODELSCOPE", "VLLM", "HYBRIDCTL"))}
    ours = {
        "HYBRIDCTL_HOME": str(root / "home"), "MODELSCOPE_CACHE": str(root / "scope"), "MODELSCOPE_ENDPOINT": address,
        "VLLM_USE_MODELSCOPE": "True", "HF_ENDPOINT": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1", "COLUMNS": "400",
    }  # fmt: skip
    argv = [sys.executable, "-m", "hybridctl", "prepare", *(words or ("a/m",)), "--vllm", "0.30.0"]
    return subprocess.run(argv, capture_output=True, text=True, env={**kept, **ours, **more}, timeout=240, check=False)


def test_a_repository_is_downloaded_once_and_linked(place: ModelScope, tmp_path: Path) -> None:
    made = prepare(tmp_path, place.address)
    assert made.returncode == 0, made.stderr
    assert "ModelScope's client has downloaded it" in made.stdout
    folder = tmp_path / "home" / "share" / "overlays" / "m"
    for name, data in FILES.items():
        if name != "config.json":
            assert (folder / name).is_symlink() and (folder / name).read_bytes() == data
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen4_exp"
    cache = world(tmp_path / "scope")
    assert all(str(path.resolve()).startswith(str(tmp_path / "scope")) for path in folder.glob("*.safetensors"))
    asked = len(place.asked)
    again = prepare(tmp_path, place.address)
    assert again.returncode == 0 and "unchanged" in again.stdout, again.stdout + again.stderr
    assert not [line for line in place.asked[asked:] if line == "GET /api/v1/models/a/m/repo"]
    offline = prepare(tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE="1")
    assert offline.returncode == 0 and "unchanged" in offline.stdout, offline.stdout + offline.stderr
    assert {p: v for p, v in world(tmp_path / "scope").items() if p.endswith("safetensors")} == {
        p: v for p, v in cache.items() if p.endswith("safetensors")
    }


def test_what_is_not_there_is_one_line(place: ModelScope, tmp_path: Path) -> None:
    gone = prepare(tmp_path, place.address, "a/none")
    assert gone.returncode == 2
    assert "error: a/none can't be had from ModelScope" in gone.stderr and "Traceback" not in gone.stderr
    offline = prepare(tmp_path, place.address, HF_HUB_OFFLINE="1")
    assert offline.returncode == 2 and "HF_HUB_OFFLINE is set" in offline.stderr
