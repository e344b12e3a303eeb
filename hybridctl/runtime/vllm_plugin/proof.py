"""Positive proof of injection: files in the run directory, since vLLM only logs a plugin that fails to import.

``registered-<pid>.json`` when a process has registered the plugin, ``layers-<rank>-<pid>.json`` when a worker holds a routed
model, ``names-<rank>-<pid>.json`` when it has loaded tensors under other names. Keys: schema_version, pid, ppid, process (the name
that vLLM gave it), and

registered: vllm, aliases {legacy class: class}, renamed [classes with a stand-in];
layers: role, rank, tp_rank, tp_size, device, vllm, model, architecture, keep_kv, banner (lines), layers {layer name: {backend,
layer, route, groups, state_bytes, frees_from}} (a layer may be in parts), untouched [layer names];
names: role, rank, model, architecture, rules [the manifest's, each with tensors (how many) and an example], empty (parameters that
got nothing, by pattern).
"""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

RUN_DIR = "HYBRIDCTL_RUN_DIR"


def run_dir() -> Path | None:
    folder = os.environ.get(RUN_DIR)
    return Path(folder) if folder else None


def write(name: str, content: dict[str, Any]) -> None:
    """Write one file whole or not at all. Nothing without a run directory; one that can't be written to is an error."""
    folder = run_dir()
    if folder is None:
        return
    head = {
        "schema_version": 1,
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "process": multiprocessing.current_process().name,
    }
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{name}.{os.getpid()}"
    draft.write_text(json.dumps({**head, **content}, indent=1), encoding="utf-8")
    draft.replace(folder / name)


def write_registered(version: str, aliases: dict[str, str], renamed: list[str]) -> None:
    write(f"registered-{os.getpid()}.json", {"vllm": version, "aliases": aliases, "renamed": renamed})


def write_layers(rank: int, content: dict[str, Any]) -> None:
    write(f"layers-{rank}-{os.getpid()}.json", {"role": "worker", "rank": rank, **content})


def write_names(rank: int, content: dict[str, Any]) -> None:
    write(f"names-{rank}-{os.getpid()}.json", {"role": "worker", "rank": rank, **content})
