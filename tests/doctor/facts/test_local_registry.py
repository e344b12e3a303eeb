"""The registry of an installed vLLM as text: whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.facts.local_registry import MAX_BYTES, REGISTRY, architectures, read_registry
from tests.doctor.facts.site_packages import REGISTRY_TEXT


def test_the_tables_that_make_the_registry() -> None:
    assert architectures(REGISTRY_TEXT) == ["LlamaForCausalLM", "Qwen3NextForCausalLM", "BertModel"]
    assert architectures(REGISTRY_TEXT.replace("\n", "\r\n")) is not None
    annotated = REGISTRY_TEXT.replace("_VLLM_MODELS = {", "_VLLM_MODELS: dict[str, tuple[str, str]] = {")
    assert architectures(annotated) == architectures(REGISTRY_TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ModelRegistry = ", "Registry = "),
        ("_VLLM_MODELS = {**_TEXT, **_EMBEDDING}", "_VLLM_MODELS = dict(_TEXT)"),
        ("_VLLM_MODELS = {**_TEXT, **_EMBEDDING}", "_VLLM_MODELS = {**_TEXT, **load_more()}"),
        ("_VLLM_MODELS = {**_TEXT, **_EMBEDDING}", "_VLLM_MODELS = {**_TEXT, **_ELSEWHERE}"),
        ("_VLLM_MODELS = {**_TEXT, **_EMBEDDING}", "_VLLM_MODELS = {**_VLLM_MODELS}"),
        ("_VLLM_MODELS = {**_TEXT, **_EMBEDDING}", "_VLLM_MODELS = {**_EMBEDDING}"),  # the part is of a table not taken
        ("_VLLM_MODELS = {**_TEXT, **_EMBEDDING}", "_VLLM_MODELS = {}"),
        ('"BertModel": (', "NAME: ("),
        ('"BertModel": (', '"BertModel: ('),
        ("{k: (mod, arch)", "{k.upper(): (mod, arch)"),
        ("_TEXT.items() if", "enumerate(_TEXT) if"),
    ],
)
def test_what_can_not_be_told_from_the_text_is_unknown(old: str, new: str) -> None:
    assert old in REGISTRY_TEXT
    assert architectures(REGISTRY_TEXT.replace(old, new)) is None


def test_files(tmp_path: Path) -> None:
    assert read_registry(tmp_path) is None
    file = tmp_path / REGISTRY
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\xff# no UTF-8\n" + REGISTRY_TEXT.encode())
    assert read_registry(tmp_path) == architectures(REGISTRY_TEXT)
    file.write_bytes(b"#" * MAX_BYTES + b"\n" + REGISTRY_TEXT.encode())
    assert read_registry(tmp_path) is None
    file.write_text("_A = {\n" + "{" * 100_000 + "\n}\n" + REGISTRY_TEXT.replace("{**_TEXT,", "{**_A,"))
    assert read_registry(tmp_path) is None


@given(st.text(alphabet='_AB={}*:,()"in.temsfork \n', max_size=300))
def test_any_text_is_taken(text: str) -> None:
    found = architectures(f"{text}\n_M = {{\n{text}\n}}\nModelRegistry = R({{x for x in _M.items()}})")
    assert found is None or all(isinstance(name, str) for name in found)


@pytest.mark.vllm
def test_the_installed_registry_is_read_as_vllm_reads_it() -> None:
    from importlib.util import find_spec

    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no vLLM here")
    import subprocess

    code = "from vllm.model_executor.models.registry import _VLLM_MODELS as m; print('\\n'.join(m))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    names = [line for line in run.stdout.splitlines() if line.isidentifier()]
    assert read_registry(Path(next(iter(spec.submodule_search_locations)))) == names
