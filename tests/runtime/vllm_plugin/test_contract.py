"""The installed vLLM has every name that the plugin uses."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hybridctl.runtime.vllm_plugin import compat

FOLDER = Path(compat.__file__).parent


@pytest.mark.vllm
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
    monkeypatch.setattr(compat, "USED", broken)
    monkeypatch.setattr(compat, "FIELDS", (("vllm.config:CacheConfig", "gone"),))
    lines = compat.problems()
    assert [line.split(":")[1].split(".")[-1].strip() for line in lines[:1]] == ["Thing"]
    assert len(lines) == 4
    assert "'z'" in lines[2]
    assert "'gone'" in lines[3]


def test_every_import_from_vllm_is_in_the_contract() -> None:
    named = {name.replace(":", ".") for name in compat.USED}
    for file in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    assert any(n == name or n.startswith(name + ".") for n in named), f"{file.name}: {name}"
