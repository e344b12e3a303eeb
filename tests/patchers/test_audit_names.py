"""Names of tensors that real checkpoints have: none of these sets gives a complaint, and one that is spoiled gives its own.

``tests/data/audit/names.json`` has the sets: what each is, its https source, and what was derived of it. A row is a pattern of
names, ``{0-2,4}`` standing for numbers, with dtype and shape. A config that is a name is that of ``tests/data/fit/families.json``.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hybridctl.model.headers import Tensor
from hybridctl.patchers.audit import audit_headers
from hybridctl.patchers.audit_fault import Fault
from hybridctl.patchers.audit_model import Asked, audit_model
from hybridctl.patchers.config import Versions

DATA = Path(__file__).parents[1] / "data"
SETS: dict[str, dict[str, Any]] = {s["name"]: s for s in json.loads((DATA / "audit/names.json").read_text("utf-8"))}
FAMILIES: dict[str, Any] = json.loads((DATA / "fit/families.json").read_text("utf-8"))
VERSIONS = Versions("0.32.0", "5.19.0")
_NUMBERS = re.compile(r"\{([\d,-]+)\}")
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "U8": 1, "F8_E4M3": 1}
LARGE = ("qwen3-next-80b", "qwen3.5-moe-25b")  # seconds each, for their experts
# Put to vLLM's own model as well: a start of about ten seconds each, so no more than these.
BUILT = ("falcon-h1", "granite-4-h", "qwen3-next-80b-gptq")


def expanded(pattern: str) -> Iterator[str]:
    match = _NUMBERS.search(pattern)
    if match is None:
        yield pattern
        return
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield from expanded(f"{pattern[: match.start()]}{number}{pattern[match.end() :]}")


def config_of(name: str) -> dict[str, Any]:
    stated = SETS[name]["config"]
    config: dict[str, Any] = json.loads(json.dumps(FAMILIES[stated] if isinstance(stated, str) else stated))
    quant = config.get("quantization_config", {})
    for field in {"ignore", "modules_to_not_convert"} & set(quant):
        quant[field] = [name for pattern in quant[field] for name in expanded(pattern)]
    return config


def tensors_of(name: str) -> list[Tensor]:
    return [
        Tensor(each, dtype, tuple(shape), math.prod(shape) * _BYTES[dtype], "model.safetensors")
        for pattern, dtype, shape in SETS[name]["tensors"]
        for each in expanded(pattern)
    ]


def faults_of(name: str, tensors: list[Tensor]) -> list[Fault]:
    return audit_headers(json.dumps(config_of(name)), tensors, VERSIONS, "MODEL")


def test_the_sets_say_where_they_are_from() -> None:
    assert len(SETS) >= 10
    assert all(s["source"].startswith("https://") and s["what"] and s["derived"] for s in SETS.values())


@pytest.mark.parametrize("name", SETS)
def test_names_of_real_checkpoints_give_no_complaint(name: str) -> None:
    tensors = tensors_of(name)
    assert len({t.name for t in tensors}) == len(tensors)
    if (total := SETS[name].get("total_size")) is not None:  # what the index of the checkpoint says
        assert sum(t.bytes for t in tensors) == total
    assert faults_of(name, tensors) == []


@pytest.mark.parametrize("name", [n for n in SETS if n not in LARGE])
def test_the_same_names_without_one_of_a_layer_give_one(name: str) -> None:
    tensors = tensors_of(name)
    quantised = "quantization_config" in config_of(name)
    norms = (
        "input_layernorm.weight",
        "operator_norm.weight",
        "layers.2.norm.weight",
        "attn_hyper_connection.hc_norm.weight",
    )
    at = next(
        i for i, t in enumerate(tensors) if ".layers." in t.name and t.name.endswith(norms) and "mtp" not in t.name
    )
    told = [(f.id, f.evidence) for f in faults_of(name, tensors[:at] + tensors[at + 1 :])]
    # Where weights are quantised, layers may differ, and only vLLM's model knows.
    assert told == ([] if quantised else [("tensor-missing", (tensors[at].name,))])


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT)
def test_vllms_own_model_takes_the_names(name: str) -> None:
    pytest.importorskip("vllm")
    asked = audit_model(json.dumps(config_of(name)), tensors_of(name), sys.executable)
    assert asked == Asked(model_class=config_of(name)["architectures"][0])
