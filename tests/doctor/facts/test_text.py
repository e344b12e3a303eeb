"""Every recorded paste gives exactly the facts that it states, each with a place in the paste."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.facts import parse_env_text
from hybridctl.doctor.facts.clean import strip_controls
from hybridctl.doctor.facts.model import Facts, spec_of

PASTES = sorted((Path(__file__).parents[2] / "data" / "env").glob("*.txt"))


def read(path: Path) -> str:
    return path.read_bytes().decode("utf-8-sig")


def as_table(facts: Facts) -> dict[str, object]:
    table: dict[str, object] = {}
    for key in dict.fromkeys(fact.key for fact in facts):
        values = []
        for fact in facts.all(key):  # a value that is stated in several places is told once
            if fact.value not in values:
                values.append(fact.value)
        table[key] = values[0] if len(values) == 1 else {"all": values}
    return table


@pytest.mark.parametrize("path", PASTES, ids=lambda p: p.stem)
def test_states_what_the_paste_states_and_nothing_else(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert as_table(parse_env_text(read(path))) == expected


@pytest.mark.parametrize("path", PASTES, ids=lambda p: p.stem)
def test_every_quote_stands_on_its_line(path: Path) -> None:
    lines = read(path).split("\n")
    for fact in parse_env_text(read(path)):
        assert fact.origin.line is not None
        assert fact.origin.quote
        assert fact.origin.quote in strip_controls(lines[fact.origin.line - 1])


@pytest.mark.parametrize("path", PASTES, ids=lambda p: p.stem)
def test_windows_line_ends_quote_marks_and_fences_change_nothing(path: Path) -> None:
    text = read(path)
    expected = as_table(parse_env_text(text))
    assert as_table(parse_env_text(text.replace("\r", "").replace("\n", "\r\n"))) == expected
    quoted = "\n".join("> " + line for line in text.replace("\r", "").split("\n"))
    assert as_table(parse_env_text(quoted)) == expected


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("Nvidia driver version        : 570.86.10", ["driver.version"]),
        ("CUDA Version (nvidia-smi)    : 12.8", ["driver.cuda"]),
        ("vLLM Version                 : 0.22.0", ["pkg.vllm"]),
        ("[pip3] torch==2.13.0+cu130", ["pkg.torch", "torch.cuda"]),
        ("GPU 0: NVIDIA H20\nGPU 1: NVIDIA H20", ["gpu.names", "gpu.count", "gpu.cc"]),
        ("GPU 0: NVIDIA A100-SXM4-80GB", ["gpu.memory_gib"]),
    ],
)
def test_a_fact_goes_when_its_quote_goes(line: str, keys: list[str]) -> None:
    for key in keys:
        fact = parse_env_text(line).get(key)
        assert fact is not None
        assert parse_env_text(line.replace(fact.origin.quote, "")).get(key) is None


def test_stated_beats_implied_and_table() -> None:
    facts = parse_env_text(
        "PyTorch version: 2.11.0+cu126\nCUDA used to build PyTorch: 12.8\nGPU 0: NVIDIA GB10\n"
        "compute_capability: 12.0\ngpu_memory_gib : 99.5\n"
    )
    assert [f.value for f in facts.all("torch.cuda")] == ["12.8"]
    assert [f.value for f in facts.all("gpu.cc")] == ["12.0"]
    assert [f.value for f in facts.all("gpu.memory_gib")] == [99.5]


def test_two_statements_stay_and_the_first_counts() -> None:
    facts = parse_env_text("vLLM Version : 0.19.0\n[pip3] vllm==0.20.0\nvLLM Version : 0.19.0\n")
    assert [f.value for f in facts.all("pkg.vllm")] == ["0.19.0", "0.20.0"]
    assert facts.value("pkg.vllm") == "0.19.0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "vLLM Version : docker (torch 2.13.0+cu129)",
            {"pkg.torch": "2.13.0+cu129", "torch.cuda": "12.9", "pkg.vllm": None},
        ),
        (
            "vLLM Version : 0.18.1rc1 (cu132)",
            {"pkg.vllm": "0.18.1rc1 (cu132)", "vllm.cuda": "13.2", "torch.cuda": None},
        ),
        ("vLLM Version : 0.11.0+cu129", {"vllm.cuda": "12.9"}),
        ("vLLM Version : docker latest", {"pkg.vllm": None, "platform.container": True}),
        ("vLLM Version : latest PyPI (2025-04)", {"pkg.vllm": None}),
        ("vLLM Version : source build (mid 2025)", {"pkg.vllm": None}),
        ("vLLM Version : ~0.10.2", {"pkg.vllm": "~0.10.2"}),
        ("PyTorch version : nightly cu130", {"pkg.torch": None, "torch.cuda": "13.0", "torch.build": "cuda"}),
        ("PyTorch version : 2.13.0+cpu", {"torch.cuda": None, "torch.build": "cpu"}),
        ("PyTorch version : 2.x (stable, pip)", {"pkg.torch": "2.x (stable, pip)"}),
        ("Platform : wsl2", {"platform.wsl": True, "platform.os": "linux"}),
        ("Platform : windows", {"platform.os": "windows", "platform.wsl": None}),
        ("Platform : docker", {"platform.container": True, "platform.os": None}),
        ("Platform : macos", {"platform.os": "macos"}),
        ("OS : Windows 11 + Ubuntu 22.04", {"platform.os": None, "platform.distro": "Windows 11 + Ubuntu 22.04"}),
        ("wsl : <2.7.0", {"platform.wsl_version": "<2.7.0", "platform.wsl": True}),
        ("wsl : 2", {"platform.wsl": True, "platform.wsl_version": None}),
        ("Python platform : Linux-6.8.0-1010-gcp-x86_64\narch : aarch64", {"platform.arch": "aarch64"}),
        ("Nvidia driver version : 53", {"driver.version": None}),
        ("CUDA Driver Version: 12.8", {"driver.cuda": "12.8", "driver.version": None}),
        ("CUDA Driver Version: 550.54.15", {"driver.version": "550.54.15", "driver.cuda": None}),
        ("cuDriverGetVersion: 12080", {"driver.cuda": "12.8"}),
        ("CUDA Version : 12.8", {"driver.cuda": None, "cuda.toolkit": None}),
        ("NCCL version : 2.21.5", {"pkg.nccl": "2.21.5"}),
        ("lmstudio version : 0.3.30 (Build 2)", {"pkg.lmstudio": "0.3.30 (Build 2)"}),
        ("ollama version is 0.17.4", {"pkg.ollama": "0.17.4"}),
        ("gpus : 8x NVIDIA H100 80GB", {"gpu.count": 8, "gpu.memory_gib": 80.0}),
        ("GPU 0: NVIDIA GH200 480GB", {"gpu.memory_gib": 96.0, "gpu.unified": False}),
        ("GPU 0: NVIDIA H100", {"gpu.memory_gib": None, "gpu.cc": "9.0"}),
        ("GPU 0: out of memory", {"gpu.count": None}),
        ('"transformers_version": "4.51.0",', {"pkg.transformers": None}),
        ("gpu_memory_utilization: 0.9", {"pkg.gpu-memory-utilization": None}),
        ("VLLM_USE_V1=1", {"env.VLLM_USE_V1": "1", "pkg.vllm-use-v1": None}),
        ("HF_TOKEN=hf_x", {"env.HF_TOKEN": None}),
        ("pip install vllm==0.11.0", {"pkg.vllm": None}),
        ("Is CUDA available : False", {"torch.cuda_available": False}),
        ("wsl : false", {"platform.wsl": False}),
        ("container : no", {"platform.container": False}),
        ("nightly", {}),
    ],
)
def test_values(text: str, expected: dict[str, object]) -> None:
    facts = parse_env_text(text)
    assert {key: facts.value(key) for key in expected} == expected


def test_reads_its_own_facts_back() -> None:
    facts = parse_env_text(read(PASTES[0]))
    again = parse_env_text("\ufeff\n" + json.dumps(facts.to_json()))
    assert list(again) == list(facts)


def test_a_foreign_or_broken_document_is_read_as_text() -> None:
    assert len(parse_env_text('{"schema_version": 2, "facts": []}')) == 0
    assert len(parse_env_text('{"schema_version": 1, "facts": [' + "[" * 100_000)) == 0


def test_long_lines_are_cut_before_they_are_matched() -> None:
    assert len(parse_env_text("x" * 5000 + "\nvLLM Version : 0.22.0" + " " * 5_000_000)) == 1


_PIECES = st.sampled_from([line for path in PASTES for line in read(path).split("\n")])
_CHARS = st.text(st.characters(codec="utf-8"), max_size=30)


@given(
    st.lists(
        st.one_of(_PIECES, _CHARS, st.tuples(_PIECES, st.integers(0, 60)).map(lambda p: p[0][: p[1]])), max_size=25
    )
)
def test_never_raises_and_states_only_what_the_model_holds(pieces: list[str]) -> None:
    text = "\n".join(pieces)
    lines = text.split("\n")
    for fact in parse_env_text(text):
        spec = spec_of(fact.key)
        assert spec is not None
        assert fact.origin.line is not None
        assert fact.origin.quote in strip_controls(lines[fact.origin.line - 1])
        kinds = {"number": (int, float), "bool": bool, "list": list}
        assert isinstance(fact.value, kinds.get(spec.kind, str))  # type: ignore[arg-type]


@given(st.text())
def test_any_text_is_fine(text: str) -> None:
    parse_env_text(text)
