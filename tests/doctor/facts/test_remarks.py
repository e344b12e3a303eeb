"""Remarks of a person become statements; settings, secrets and lists of packages do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.facts import parse_env_text
from hybridctl.doctor.facts.clean import clean_lines
from hybridctl.doctor.facts.remarks import MAX_REMARKS, parse


def said(text: str) -> list[str]:
    return [str(f.value) for f in parse_env_text(text).all("report.said")]


@pytest.mark.parametrize(
    "line",
    [
        "symptom                      : acceptance rate stays 0",
        'output                       : "!!!!!"',
        "without_mtp                  : 342.2 tokens/s",
        "The second answer is always garbage when two clients ask at once.",
        "现象: 输出全部是感叹号",
        "flash-linear-attention       : not installed",
    ],
)
def test_what_was_seen_is_kept(line: str) -> None:
    assert said(line) == [" ".join(line.split())]


@pytest.mark.parametrize(
    "line",
    [
        "[pip3] torch==2.13.0+cu130",
        "Model name                   : AMD EPYC 9354 32-Core Processor",
        "HF_TOKEN=hf_notarealone",
        "error_token : secret",
        "GPU0     X      PHB     NODE    NODE    0-127   0               N/A",
        "vLLM Version                 : 0.22.0",
    ],
)
def test_facts_and_secrets_are_no_remarks(line: str) -> None:
    assert said(line) == []


def test_a_setting_without_dashes_is_the_flag() -> None:
    facts = parse_env_text(
        "kv_cache_dtype : fp8\nmamba_radix_cache_strategy : extra_buffer (default)\nmodel_kind : big\n"
    )
    assert facts.value("flag.kv-cache-dtype") == "fp8"
    assert facts.value("flag.mamba-radix-cache-strategy") == "extra_buffer"
    assert not facts.has("flag.model")


def test_a_variable_that_is_listed_like_a_version_is_a_variable() -> None:
    facts = parse_env_text("VLLM_ATTENTION_BACKEND       : XFORMERS\nHF_TOKEN : hf_notarealone\n")
    assert facts.value("env.VLLM_ATTENTION_BACKEND") == "XFORMERS"
    assert not any("notarealone" in str(fact.value) for fact in facts)


def test_a_long_paste_keeps_a_bounded_number() -> None:
    lines = clean_lines("\n".join(f"symptom {i} : answers are garbage" for i in range(MAX_REMARKS * 2)))
    assert len(parse(lines).statements) == MAX_REMARKS


@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    parse_env_text(f"symptom : {text}")


@pytest.mark.parametrize(
    "line",
    [
        "gpus_note : list cut off in the stored excerpt, at least two",
        "note : log truncated here",
        "note: the traceback is cut",
    ],
)
def test_words_about_the_paste_are_no_symptom(line: str) -> None:
    assert parse_env_text(line).get("report.said") is None
