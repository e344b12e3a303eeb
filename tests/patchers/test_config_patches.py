"""Patches of config.json: what each release reads, and that nothing else of the text moves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.errors import UsageError
from hybridctl.patchers.config import Versions, patch, unified
from hybridctl.patchers.json_edit import drop, parse, put, spans

KINDS = {"linear_attention", "full_attention", "qwen_sparse_attention", "indexed_attention"}


def qwen4(sparse: str = "full_attention", **text: Any) -> str:
    inner = {
        "model_type": "qwen4_exp_text",
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", sparse],
        "hidden_act": "silu",
        "output_gate_type": "sigmoid",
        "zz_unknown": {"kept": [1, 2.50, 1e-6]},
        **text,
    }
    document = {
        "architectures": ["Qwen4ExpForConditionalGeneration"],
        "model_type": "qwen4_exp",
        "text_config": inner,
        "a_key": "é",
    }
    return json.dumps(document, indent=2) + "\n"


@pytest.mark.parametrize(
    ("vllm", "transformers", "stated", "written"),
    [
        ("0.29.0", "5.24.0", "qwen_sparse_attention", "full_attention"),
        ("0.30.0", "5.24.0", "indexed_attention", "full_attention"),
        ("0.30.0", "", "full_attention", "full_attention"),
        ("0.31.0", "5.17.0", "qwen_sparse_attention", "qwen_sparse_attention"),
        ("0.31.0", "5.17.0", "indexed_attention", "full_attention"),
        ("0.32.0", "5.17.0", "indexed_attention", "full_attention"),
        ("0.32.0", "", "indexed_attention", "full_attention"),
        ("0.32.0", "5.17.0", "qwen_sparse_attention", "qwen_sparse_attention"),
        ("0.32.0", "5.18.0", "indexed_attention", "indexed_attention"),
        ("0.33.0", "5.20.0", "qwen_sparse_attention", "qwen_sparse_attention"),
        ("0.32.0+cpu", "5.19.0", "full_attention", "full_attention"),
        ("0.28.0", "5.19.0", "indexed_attention", "indexed_attention"),
    ],
)
def test_layer_types_are_spelled_for_the_release(vllm: str, transformers: str, stated: str, written: str) -> None:
    made = patch(qwen4(stated), Versions(vllm, transformers))
    assert made.document["text_config"]["layer_types"][3] == written
    assert [c.field for c in made.changes] == (["layer_types"] if written != stated else [])
    assert json.loads(made.after) == made.document


def test_the_diff_holds_only_what_changed_and_patch_takes_it(tmp_path: Path) -> None:
    made = patch(qwen4("indexed_attention", output_gate_type=None), Versions("0.30.0", "5.24.0"))
    assert [c.field for c in made.changes] == ["layer_types", "output_gate_type"]
    moved = [line for line in made.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert moved == [
        '-      "indexed_attention"',
        '+      "full_attention"',
        '-    "output_gate_type": null,',
        '+    "output_gate_type": "silu",',
    ]
    (tmp_path / "config.json").write_text(made.before)
    subprocess.run(["git", "apply", "-"], input=made.diff, text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "config.json").read_text() == made.after


@pytest.mark.parametrize(
    ("vllm", "fields", "expected"),
    [
        ("0.32.0", {"output_gate_type": None}, "silu"),
        ("0.33.0", {"output_gate_type": None, "hidden_act": "sigmoid"}, "sigmoid"),
        ("0.32.0", {"output_gate_type": None, "hidden_act": "gelu"}, None),
        ("0.32.0", {}, "sigmoid"),
    ],
)
def test_the_output_gate(vllm: str, fields: dict[str, Any], expected: str | None) -> None:
    made = patch(qwen4(**fields), Versions(vllm, "5.19.0"))
    assert made.document["text_config"]["output_gate_type"] == expected
    assert bool(made.warnings) == (expected is None)


def test_a_gate_that_is_left_out_is_written_where_vllm_stops_without_it() -> None:
    text = json.loads(qwen4())
    del text["text_config"]["output_gate_type"]
    stated = json.dumps(text)
    made = patch(stated, Versions("0.32.0", "5.19.0"))
    assert made.document["text_config"]["output_gate_type"] == "silu"
    assert list(made.document["text_config"])[:-1] == list(text["text_config"])
    assert "\n" not in made.after  # one line stays one line
    assert patch(stated, Versions("0.30.0", "5.24.0")).after == stated  # that release has a default of its own


def test_names_of_the_preview_image() -> None:
    text = (
        qwen4()
        .replace("Qwen4Exp", "Qwen3_8FlashNext")
        .replace('"qwen4_exp_text"', '"qwen3_8_flash_next_text"')
        .replace('"qwen4_exp"', '"qwen3_8_flash_next"')
    )
    made = patch(text, Versions("0.32.0", "5.19.0"))
    assert made.after == qwen4()
    assert [c.path for c in made.changes] == ["architectures.0", "model_type", "text_config.model_type"]


@pytest.mark.parametrize(
    ("document", "written"),
    [
        ({"model_type": "qwen3_5_text"}, "Qwen3_5ForCausalLM"),
        # The whole model as it is published: the type of its text part says nothing of its class.
        ({"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text"}}, "Qwen3_5ForConditionalGeneration"),
    ],
)
def test_only_a_text_only_checkpoint_loses_the_class_of_the_vision_model(
    document: dict[str, Any], written: str
) -> None:
    text = json.dumps({"architectures": ["Qwen3_5ForConditionalGeneration"], **document})
    made = patch(text, Versions("0.32.0", "5.19.0"))
    assert made.document["architectures"] == [written]
    older = patch(text, Versions("0.26.0", "5.2.0"))  # which has the class of the vision model only
    assert older.document["architectures"] == ["Qwen3_5ForConditionalGeneration"]
    assert bool(older.warnings) == (written == "Qwen3_5ForCausalLM")


def test_other_models_and_second_runs_are_left_alone() -> None:
    other = qwen4("indexed_attention").replace("qwen4_exp", "hy_v4")
    assert patch(other, Versions("0.30.0", "5.24.0")).after == other
    once = patch(qwen4("indexed_attention", output_gate_type=None), Versions("0.30.0", "5.24.0")).after
    assert patch(once, Versions("0.30.0", "5.24.0")).after == once


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 5000 + "]" * 5000, "nested"),
        ('{"a": ' * 100 + "1" + "}" * 100, "nested 100 deep"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' stands twice"),
        ("[]", "no object"),
        ('{"a": 1,}', "no JSON"),
        ("version https://git-lfs.github.com/spec/v1", "no JSON"),
    ],
)
def test_hostile_texts(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        patch(text, Versions("0.32.0"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(max_size=6), VALUES, max_size=5),
    VALUES,
    st.data(),
    st.sampled_from([None, 1, 2, 4]),
    st.booleans(),
)
def test_any_document_can_be_edited_anywhere(
    document: dict[str, Any], value: Any, data: st.DataObject, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    places = spans(text)
    objects = [p for p in places if text[places[p].begin] == "{"]
    path = data.draw(
        st.sampled_from([p for p in places if p] or [("new",)]) | st.just((*data.draw(st.sampled_from(objects)), "new"))
    )  # type: ignore[misc]
    edited = put(text, path, value)
    expected = json.loads(text)
    holder = expected
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    assert parse(edited, "x") == expected
    assert list(parse(edited, "x")) == list(expected)


@given(st.dictionaries(st.text(max_size=6), VALUES, min_size=1, max_size=5), st.data(), st.sampled_from([None, 2]))
def test_any_member_can_be_taken_out(document: dict[str, Any], data: st.DataObject, indent: int | None) -> None:
    key = data.draw(st.sampled_from(list(document)))
    edited = drop(json.dumps(document, indent=indent), (key,))
    assert parse(edited, "x") == {k: v for k, v in document.items() if k != key}


def test_a_missing_newline_at_the_end_is_shown() -> None:
    assert unified("c", "{}", '{"a": 1}').endswith('+{"a": 1}\n\\ No newline at end of file\n')
