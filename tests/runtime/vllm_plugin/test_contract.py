"""The installed vLLM has every name that the plugin uses, and the list of them can't fall behind the code."""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

import hybridctl
from hybridctl.runtime.vllm_plugin import compat

ROOT = Path(hybridctl.__file__).parent
FOLDER = Path(compat.__file__).parent
# Where vLLM comes in: the entry points of pyproject.toml, and the module that architectures are registered with by name.
ENTRIES = ("plugin", "generate_endpoint", "models")
# Read from a checkpoint's configuration, which is transformers' and not vLLM's.
CHECKPOINT = {"hybrid_config", "layer_types", "num_hidden_layers"}
# Our own, hung on an object of vLLM's.
HUNG = {"linear_proj", "linear_head_gate", "hybrid"}


@pytest.mark.vllm
@pytest.mark.core
def test_the_installed_vllm_keeps_the_contract() -> None:
    pytest.importorskip("vllm")
    assert compat.problems() == []


@pytest.mark.vllm
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm")
    broken = {
        "vllm.v1.gone:Thing": None,
        "vllm.v1.core.block_pool:BlockPool.gone": None,
        "vllm.utils.math_utils:cdiv": ("a", "z"),
        "vllm.model_executor.models.utils:extract_layer_index": None,
    }
    fields = (
        ("vllm.config:CacheConfig", "gone"),
        ("vllm.v1.core.block_pool:BlockPool", "null_block"),
        ("vllm.v1.core.block_pool:BlockPool", "nil_block"),
    )
    monkeypatch.setattr(compat, "USED", broken)
    monkeypatch.setattr(compat, "FIELDS", fields)
    lines = compat.problems()
    assert [line.split(":")[1].split(".")[-1].strip() for line in lines[:1]] == ["Thing"]
    assert len(lines) == 5
    assert "'z'" in lines[2]
    assert "'gone'" in lines[3]
    assert "'nil_block'" in lines[4]


def module(name: str) -> Path | None:
    """The file of a module of hybridctl."""
    path = ROOT.parent.joinpath(*name.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def imported(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hybridctl":
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """The source of the plugin and of all of hybridctl that it imports."""
    found: dict[Path, ast.Module] = {}
    todo: list[Path | None] = [FOLDER / f"{name}.py" for name in ENTRIES]
    while todo:
        file = todo.pop()
        if file is not None and file not in found:
            found[file] = ast.parse(file.read_text(encoding="utf-8"))
            todo += [module(name) for name in imported(found[file])]
    return found


def plugin_trees() -> dict[str, ast.Module]:
    return {file.name: tree for file, tree in trees().items() if file.parent == FOLDER}


def names_from_vllm(tree: ast.AST) -> list[str]:
    """What is imported from vLLM, in full."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("vllm.")]
    return found


def attributes(tree: ast.AST) -> set[str]:
    """Attribute names that are read, set or asked for by getattr."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            found |= {a.value for a in node.args[1:2] if isinstance(a, ast.Constant)}
    return found


def own(tree: ast.AST) -> set[str]:
    """Names that this source defines: functions, classes, fields, parameters, attributes of self, of an object that it made."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found |= {node.name, *(a.arg for a in (*node.args.args, *node.args.kwonlyargs))}
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
            found |= {b.target.id for b in node.body if isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name)}
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def others() -> set[str]:
    """Attributes of Python, torch and the other packages that the plugin uses."""
    import copy
    import importlib
    import inspect
    import json
    import logging
    import multiprocessing
    import os
    import sys
    import time

    import fastapi
    import packaging.version
    import prometheus_client
    import pydantic
    import torch

    things: list[Any] = [copy, functools, importlib, inspect, json, multiprocessing, os, sys, time, ast, builtins]
    things += [
        multiprocessing.current_process(),
        lambda: None,
        str,
        bytes,
        int,
        list,
        dict,
        set,
        type,
        Path,
        Exception,
        logging.Logger,
    ]
    things += [torch, torch.Tensor, torch.nn, torch.nn.Module, packaging.version.Version, pydantic.BaseModel]
    things += [fastapi.FastAPI, fastapi.Request, prometheus_client.Counter, AsyncIterator]
    return {name for thing in things for name in dir(thing)}


def unknown(tree: ast.AST) -> set[str]:
    """Attributes that neither we nor the other packages define, nor the contract names: they must be vLLM's."""
    listed = {
        part for name, wanted in compat.USED.items() for part in (*name.partition(":")[2].split("."), *(wanted or ()))
    }
    listed |= {field for _, field in compat.FIELDS}
    defined = set().union(*map(own, trees().values()))
    return attributes(tree) - listed - defined - others() - CHECKPOINT - HUNG


def test_every_module_here_is_the_plugin_or_a_program_of_its_own() -> None:
    for file in FOLDER.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert file.name in plugin_trees() or file.name == "compat.py" or '__name__ == "__main__"' in text, file.name


def test_every_import_from_vllm_is_in_the_contract() -> None:
    named = {name.replace(":", ".") for name in compat.USED}
    assert len(plugin_trees()) > 10
    for file, tree in plugin_trees().items():
        for name in names_from_vllm(tree):
            assert any(n == name or n.startswith(name + ".") for n in named), f"{file}: {name}"


@pytest.mark.vllm
def test_every_attribute_of_vllm_is_in_the_contract() -> None:
    pytest.importorskip("vllm")
    found = {file: unknown(tree) for file, tree in plugin_trees().items()}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.vllm
def test_a_new_name_of_vllm_would_be_noticed() -> None:
    pytest.importorskip("vllm")
    source = """
def peek(vllm_config, layer, common):
    limit = vllm_config.observability_config.max_num_partial_prefills
    if getattr(layer, "use_alibi_sqrt", False):
        layer.impl.supports_quant_query_input = True
    return common.build_for_drafting(limit), common.query_start_loc
"""
    assert unknown(ast.parse(source)) == {
        *("observability_config", "max_num_partial_prefills", "use_alibi_sqrt", "supports_quant_query_input"),
        "build_for_drafting",
    }
    assert names_from_vllm(ast.parse("from vllm.v1 import gone\nimport vllm.envs")) == ["vllm.v1.gone", "vllm.envs"]
