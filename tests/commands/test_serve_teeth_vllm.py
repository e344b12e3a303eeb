"""The proof has teeth: in the installed vLLM, a start without the plugin in every process ends, and says why."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_vllm import free_port, serving

from hybridctl.runtime import checkpoint, overlay_min

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]
START = 500.0
"""Seconds that a start may take on a busy machine; 30 are usual."""

# Read by every Python that vLLM starts, before anything else; hybridctl's own process does not have that variable.
SHIM = """
import os, sys
from importlib.machinery import PathFinder

if "HYBRIDCTL_RUN_DIR" in os.environ:
    class After:
        \"\"\"Changes a module right after its import.\"\"\"

        def __init__(self, name, change):
            self.name, self.change = name, change

        def find_spec(self, name, path=None, target=None):
            if name != self.name:
                return None
            spec = PathFinder.find_spec(name, path)
            run = spec.loader.exec_module
            def exec_module(module):
                run(module)
                self.change(module)
            spec.loader.exec_module = exec_module
            return spec

"""
MISSPELT = """
    os.environ["VLLM_PLUGINS"] = "hybridclt"
"""
RAISES = """
    def change(module):
        raise ImportError("a library of this machine does not load")
    sys.meta_path.insert(0, After("hybridctl.runtime.vllm_plugin.plugin", change))
"""
RANK_1_IS_SILENT = """
    def change(module):
        write = module.write_layers
        module.write_layers = lambda rank, content: None if rank == 1 else write(rank, content)
    sys.meta_path.insert(0, After("hybridctl.runtime.vllm_plugin.proof", change))
"""
RANK_1_RAISES = """
    def know(module):
        write = module.write_layers
        def write_layers(rank, content):
            os.environ["THIS_RANK"] = str(rank)
            write(rank, content)
        module.write_layers = write_layers
    def change(module):
        add = module.Counters.add
        def raising(self, *counted):
            if os.environ["THIS_RANK"] == "1":
                raise RuntimeError("rank 1 has no such kernel")
            add(self, *counted)
        module.Counters.add = raising
    sys.meta_path.insert(0, After("hybridctl.runtime.vllm_plugin.proof", know))
    sys.meta_path.insert(0, After("hybridctl.runtime.vllm_plugin.counters", change))
"""
TWO_RANKS = ("--demo", "--tensor-parallel-size", "2", "--", "--max-model-len", "1024", "--max-num-seqs", "2")


def before(folder: Path) -> str:
    """A PYTHONPATH on which a folder comes first."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def shim(folder: Path, body: str) -> str:
    """A PYTHONPATH with a sitecustomize.py that does what is given."""
    place = folder / "shim"
    place.mkdir()
    (place / "sitecustomize.py").write_text(SHIM + body)
    return before(place)


def refused(folder: Path, *arguments: str, **env: str) -> tuple[int, str]:
    """A start that ends by itself: exit code and the line that says why. Asserts that nothing is left of it."""
    quick = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with serving(folder, *arguments, python=Path(sys.executable), **{**quick, **env}) as server:
        code, line = server.why(START)
        assert server.left == []
        assert "Ready" not in server.out
        return code, line


def a_name_is_misspelt(folder: Path) -> None:
    code, line = refused(folder, VLLM_PLUGINS="hybridclt")
    assert code == 2
    assert "VLLM_PLUGINS names 'hybridclt'" in line and "did you mean 'hybridctl'?" in line
    assert not (folder / "home" / "state").exists()


def a_name_is_misspelt_on_the_way(folder: Path) -> None:
    code, line = refused(folder, PYTHONPATH=shim(folder, MISSPELT))
    assert code == 1
    assert "could not load hybridctl's plugin: a process of it does not know HybridCtlQwen3ForCausalLM" in line
    assert "VLLM_PLUGINS" in line


def the_plugin_fails_to_import(folder: Path) -> None:
    code, line = refused(folder, PYTHONPATH=shim(folder, RAISES))
    assert code == 1
    assert "could not load hybridctl's plugin: ImportError: a library of this machine does not load" in line


def the_installation_is_damaged(folder: Path) -> None:
    damaged = folder / "path" / "hybridctl-0.0.1.dist-info"
    damaged.mkdir(parents=True)
    (damaged / "METADATA").write_text("Metadata-Version: 2.1\nName: hybridctl\nVersion: 0.0.1\n")
    (damaged / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nhybridctl = hybridctl.runtime.vllm_plugin.gone:register\n"
    )
    code, line = refused(folder, PYTHONPATH=before(damaged.parent))
    assert code == 1
    assert "No module named 'hybridctl.runtime.vllm_plugin.gone'" in line


def one_worker_raises_at_work(folder: Path) -> None:
    path = shim(folder, RANK_1_RAISES)
    code, line = refused(folder, *TWO_RANKS, PYTHONPATH=path, VLLM_CPU_OMP_THREADS_BIND="0|1")
    assert code == 3
    assert "an exception in one worker, and vLLM waits for it" in line
    assert "RuntimeError: rank 1 has no such kernel" in line


def one_worker_does_not_prove_itself(folder: Path) -> None:
    path = shim(folder, RANK_1_IS_SILENT)
    code, line = refused(folder, *TWO_RANKS, PYTHONPATH=path, VLLM_CPU_OMP_THREADS_BIND="0|1")
    assert code == 3
    assert "the dispatcher is not injected: the worker of rank 1 holds no routed model" in line
    assert "rank 0" not in line


def the_overlay_is_served_by_plain_vllm(folder: Path) -> None:
    model = checkpoint.demo()
    assert model.folder is not None
    overlay = overlay_min.make(model.folder, folder / "overlay", model.config)
    assert json.loads((overlay / "config.json").read_text())["architectures"] == ["HybridCtlQwen3ForCausalLM"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HYBRIDCTL_", "VLLM_"))}
    line = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(overlay), "--enforce-eager"]
    done = subprocess.run(
        [*line, "--port", str(free_port())],
        env={**env, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
        timeout=START,
        check=False,
    )
    assert done.returncode != 0
    assert "Model architectures ['HybridCtlQwen3ForCausalLM']" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "scenario",
    [
        one_worker_raises_at_work,
        one_worker_does_not_prove_itself,
        a_name_is_misspelt,
        a_name_is_misspelt_on_the_way,
        the_plugin_fails_to_import,
        the_installation_is_damaged,
        the_overlay_is_served_by_plain_vllm,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_no_start_where(
    side_by_side: Callable[[Callable[[Path], None]], None], scenario: Callable[[Path], None]
) -> None:
    side_by_side(scenario)
