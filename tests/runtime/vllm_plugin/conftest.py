"""Tests of the plugin inside vLLM. Where vLLM is missing they are skipped."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Before vLLM is imported: in-process engines, the plugin on, no network. Where there is none, the other tests of this process
# must not find these settings.
if importlib.util.find_spec("vllm") is not None:
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_PLUGINS", "hybridctl")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    # Models this small gain nothing from a second thread, and on a busy machine lose tenfold by waiting for it.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

sys.path.insert(0, str(Path(__file__).parents[1]))  # fake_vllm


@pytest.fixture(autouse=True)
def plugin_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The plugin's environment; returns the run directory."""
    monkeypatch.setenv("HYBRIDCTL_PLUGIN", "1")
    monkeypatch.setenv("HYBRIDCTL_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("HYBRIDCTL_KEEP_KV", raising=False)
    return tmp_path / "run"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes tiny checkpoints, each distinct one once."""
    from tiny_models import make_model

    made: dict[str, Path] = {}

    def make(family: str, hybrid_config: dict[str, Any] | None, **settings: Any) -> Path:
        key = repr((family, hybrid_config, sorted(settings.items())))
        if key not in made:
            made[key] = make_model(tmp_path_factory.mktemp(family), family, hybrid_config, **settings)
        return made[key]

    return make


@pytest.fixture(scope="session")
def reference() -> Callable[..., Any]:
    """The float32 reference of a checkpoint, or of it with another hybrid_config."""
    import torch

    from hybridctl.kernels.linear_attention.reference_model import load_reference

    made: dict[str, Any] = {}

    def load(model: Path, config: dict[str, Any] | None = None) -> Any:
        key = repr((model, config))
        if key not in made:
            made[key] = load_reference(model, config, dtype=torch.float32)
        return made[key]

    return load
