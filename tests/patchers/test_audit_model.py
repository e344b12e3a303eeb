"""The audit with vLLM's own model: right checkpoints of four families give no complaint, seeded faults are named exactly."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from seeded import SEED

from hybridctl.model.headers import Tensor
from hybridctl.model.inventory import Inventory
from hybridctl.patchers import audit_model as module
from hybridctl.patchers.audit import audit_prepared
from hybridctl.patchers.audit_fault import Fault
from hybridctl.patchers.audit_model import Asked, audit_model, audit_models
from hybridctl.patchers.config import Versions

FAMILIES = ("qwen3", "llama", "qwen3_next", "granite_4_h")


def _headers(family: str, fault: str = "") -> list[Tensor]:
    made = SEED.build(family)
    if fault:
        SEED.FAULTS[fault].before(made)
    return [Tensor(n, d, s, 0, "model.safetensors") for shard in made.shards for n, (d, s) in shard.items()]


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_right_checkpoints_pass_and_seeded_faults_are_named(family: str) -> None:
    pytest.importorskip("vllm")
    seeds = {n: s for n, s in SEED.FAULTS.items() if s.needs_vllm and s.family == family}
    lists = [_headers(family), *(_headers(family, name) for name in seeds)]
    right, *found = audit_models(json.dumps(SEED.CONFIGS[family]), lists, sys.executable)
    assert right == Asked(model_class=SEED.CONFIGS[family]["architectures"][0])
    assert len(found) == len(seeds) >= 2
    for (name, seed), asked in zip(seeds.items(), found, strict=True):
        assert not asked.unknown, name
        assert {fault.id for fault in asked.faults} == {seed.id}, (name, asked.faults)
        assert seed.evidence in {each for fault in asked.faults for each in fault.evidence}, (name, asked.faults)


@pytest.mark.vllm
@pytest.mark.slow
def test_scales_of_fp8_blocks_under_the_other_name_are_put_right_by_a_rule() -> None:
    """vLLM's own layers say which name they have: that of blocks in the first list, and the list that has it gets no rule."""
    pytest.importorskip("vllm")
    sound = _headers("qwen3_fp8")
    plain = [replace(t, name=t.name.replace("weight_scale_inv", "weight_scale")) for t in sound]
    for tensors, expected in ((plain, [".weight_scale → .weight_scale_inv"]), (sound, [])):
        found, rules = audit_prepared(
            json.dumps(SEED.CONFIGS["qwen3_fp8"]), Inventory(tuple(tensors), 3, "x"), Versions("0.32.0", "5.19.0"), "MODEL",
            python=sys.executable,
        )  # fmt: skip
        assert (found.faults, found.unknown, [rule.shown for rule in rules]) == ((), "", expected)


def _answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    """Another program in place of ours, for the interpreter that runs the tests."""
    program = tmp_path / "program.py"
    program.write_text(f"import json, sys, time\n{body}\n")
    monkeypatch.setattr(module, "PROGRAM", program)


def _ask(
    answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: list[Fault] | None = None
) -> Asked:
    _answers(monkeypatch, tmp_path, f"print({json.dumps(json.dumps(answer))})")
    tensors = [Tensor("model.layers.0.self_attn.q_proj.weight", "BF16", (3, 3), 18, "a.safetensors")]
    return audit_model('{"model_type": "x"}', tensors, sys.executable, known=known or [])


DONE: dict[str, Any] = {"stage": "done", "vllm": "0.32.0", "model_class": "X", "refused": [], "short": {}, "unused": []}


def test_the_child_sees_names_and_shapes_and_no_weight_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    SEED.make("qwen3", tmp_path / "model")
    (tmp_path / "model/preprocessor_config.json").write_text("{}")
    told = tmp_path / "told"
    _answers(
        monkeypatch, tmp_path,
        "from pathlib import Path\n"
        "names = sorted(p.name for p in Path(sys.argv[1]).iterdir())\n"
        f"Path({str(told)!r}).write_text(json.dumps([names, Path(sys.argv[2]).read_text()]))\n"
        f"print({json.dumps(json.dumps(DONE))})",
    )  # fmt: skip
    row = Tensor("a.weight", "BF16", (2, 3), 12, "x.safetensors")
    assert audit_model("{}", [row], sys.executable, folder=tmp_path / "model") == Asked(model_class="X")
    names, rows = json.loads(told.read_text())
    assert names == ["config.json", "preprocessor_config.json", "tensors-0.list"]
    assert json.loads(rows) == [["a.weight", "BF16", [2, 3]]]


def test_what_could_not_be_asked_is_unknown_and_no_all_clear(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = {"stage": "build", "vllm": "0.32.0", "error": "ValueError: no such class"}
    asked = _ask(answer, monkeypatch, tmp_path)
    assert (asked.faults, asked.unknown) == ((), "vLLM 0.32.0 could not build the model: ValueError: no such class")
    _answers(monkeypatch, tmp_path, "sys.exit(3)")
    assert "exit status 3" in audit_model("{}", [], sys.executable).unknown
    _answers(monkeypatch, tmp_path, "time.sleep(60)")
    assert audit_model("{}", [], sys.executable, seconds=0.3).unknown == "no answer within 0.3 s"
    assert "can't run" in audit_model("{}", [], str(tmp_path / "none")).unknown


def test_layers_are_grouped_and_parts_of_a_parameter_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    short = {f"model.layers.{i}.mlp.gate_up_proj.weight": [10, 20] for i in range(30)} | {"model.norm.weight": [0, 8]}
    whole, part = _ask({**DONE, "short": short}, monkeypatch, tmp_path).faults
    assert (whole.id, whole.evidence) == ("tensor-missing", ("model.norm.weight",))
    assert (part.id, len(part.evidence)) == ("tensor-incomplete", 30)
    assert part.what == "model.layers.*.mlp.gate_up_proj.weight (30): this parameter of X would get 10 of 20 numbers"


def test_a_tensor_of_which_a_part_is_taken_has_the_wrong_shape(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cut = {f"model.layers.{i}.mamba.norm.weight": [256, 258] for i in range(2)}
    (fault,) = _ask({**DONE, "cut": cut}, monkeypatch, tmp_path).faults
    assert (fault.id, fault.evidence) == ("wrong-shape", tuple(cut))
    assert fault.what == "model.layers.*.mamba.norm.weight (2): X takes 256 of its 258 numbers"


def test_what_follows_from_a_fault_is_not_told_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = {
        "names": ["language_model.layers.0.self_attn.q_proj.weight"],
        "shape": [3, 3],
        "error": "AssertionError: ",
    }
    short = {"model.layers.0.self_attn.qkv_proj.weight": [6, 9]}
    asked = _ask({**DONE, "refused": [refused], "short": short}, monkeypatch, tmp_path)
    assert [f.id for f in asked.faults] == ["wrong-shape"]
    known = [Fault("linear-prefix", "", ("x.linear_q_proj",), "", "", "")]
    assert _ask({**DONE, "unused": ["x.linear_q_proj"]}, monkeypatch, tmp_path, known).faults == ()


NORMS = [f"model.layers.{i}.self_attn.{part}_norm.weight" for i in range(2) for part in "qk"]


@pytest.mark.parametrize(
    ("shapes", "short", "ids"),
    [
        ([(4, 2), (4, 2)], [[0, 8], [0, 8]], ["tensor-renamed"]),
        ([(4, 2), (4, 2)], [[16, 24], [16, 24]], ["tensor-renamed"]),  # a part of a fused parameter
        ([(4, 2), (4, 2)], [[0, 9], [0, 9]], ["tensor-unexpected", "tensor-missing"]),  # of another size
        ([(4, 2)], [[0, 8], [0, 8]], ["tensor-unexpected", "tensor-missing"]),  # in one layer only
    ],
)
def test_a_tensor_without_a_use_and_a_parameter_that_lacks_it_are_one_renamed_tensor(
    shapes: list[tuple[int, int]],
    short: list[list[int]],
    ids: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    tensors = [Tensor(f"model.layers.{i}.out.weight", "BF16", shape, 0, "a") for i, shape in enumerate(shapes)]
    lacking = {f"model.layers.{i}.o_proj.weight": got for i, got in enumerate(short)}
    answer = {**DONE, "short": lacking, "unused": [t.name for t in tensors]}
    _answers(monkeypatch, tmp_path, f"print({json.dumps(json.dumps(answer))})")
    faults = audit_model("{}", tensors, sys.executable).faults
    assert [f.id for f in faults] == ids
    assert {each for f in faults for each in f.evidence} == {*lacking, *(t.name for t in tensors)}


def test_two_parameters_that_fit_are_no_renamed_tensor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tensors = [Tensor(f"model.layers.{i}.self_attn.norm.weight", "BF16", (8,), 0, "a") for i in range(2)]
    answer = {**DONE, "short": {name: [0, 8] for name in NORMS}, "unused": [t.name for t in tensors]}
    _answers(monkeypatch, tmp_path, f"print({json.dumps(json.dumps(answer))})")
    told = [f.id for f in audit_model("{}", tensors, sys.executable).faults]
    assert told == ["tensor-unexpected", "tensor-missing", "tensor-missing"]


@pytest.mark.parametrize(
    ("name", "config", "told"),
    [
        ("mtp.layers.0.mlp.up_proj.weight", {}, False),
        ("lm_head.weight", {"tie_word_embeddings": True}, False),
        ("lm_head.weight", {}, True),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", {}, False),
        ("model.layers.0.self_attn.foo.weight", {}, True),
    ],
)
def test_tensors_without_a_use_are_told_unless_they_never_have_one(
    name: str, config: dict[str, Any], told: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _answers(monkeypatch, tmp_path, f"print({json.dumps(json.dumps({**DONE, 'unused': [name]}))})")
    asked = audit_model(json.dumps(config), [Tensor(name, "BF16", (2,), 4, "a")], sys.executable)
    assert [f.id for f in asked.faults] == (["tensor-unexpected"] if told else [])


BIAS = "model.layers.0.mlp.experts.w13_bias"


@pytest.mark.parametrize(
    ("method", "stored", "short", "told"),
    [
        ("gptq", "model.layers.0.mlp.experts.0.up_proj.qweight", BIAS, []),
        (
            "gptq",
            "model.layers.0.mlp.experts.0.up_proj.bias",
            BIAS,
            ["tensor-missing"],
        ),  # it has biases, and this one got none
        ("mxfp4", "model.layers.0.mlp.experts.0.up_proj.qweight", BIAS, ["tensor-missing"]),
        ("compressed-tensors", "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.attn.k_zero_point", []),
        (
            "compressed-tensors",
            "model.layers.0.mlp.up_proj.weight",
            "model.layers.0.mlp.zero_point",
            ["tensor-missing"],
        ),
    ],
)
def test_parameters_that_vllm_makes_for_quantised_layers(
    method: str, stored: str, short: str, told: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unused = ["model.layers.0.mlp.up_proj.g_idx"]  # dropped by vLLM itself
    _answers(
        monkeypatch, tmp_path, f"print({json.dumps(json.dumps({**DONE, 'short': {short: [0, 4]}, 'unused': unused}))})"
    )
    config = json.dumps({"quantization_config": {"quant_method": method}})
    tensors = [Tensor(name, "I32", (2,), 8, "a") for name in (stored, *unused)]
    assert [f.id for f in audit_model(config, tensors, sys.executable).faults] == told
