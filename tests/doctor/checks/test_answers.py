"""The checks on what a server answers: tool-call parser and model, speed with drafts and without."""

from __future__ import annotations

import pytest

from hybridctl.doctor.checks import Context, draft_gain, tool_parser
from hybridctl.doctor.facts import parse_env_text
from hybridctl.doctor.facts.command import parse_command

SERVE = "vllm serve {} --enable-auto-tool-choice --tool-call-parser {}"


def parsed(model: str, parser: str) -> Context:
    return Context(parse_command(SERVE.format(model, parser)))


@pytest.mark.parametrize(
    ("model", "parser"),
    [
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "hermes"),
        ("Qwen3.6-27B", "hermes"),
        ("openai/gpt-oss-20b", "hermes"),
        ("moonshotai/Kimi-K2-Instruct", "deepseek_v3"),
        ("zai-org/GLM-4.5-Air-FP8", "hermes"),
    ],
)
def test_a_parser_of_another_family_is_told(model: str, parser: str) -> None:
    outcome = tool_parser.CHECK.run(parsed(model, parser))
    assert [f.id for f in outcome.findings] == ["tool-parser-for-another-model"]
    assert outcome.findings[0].severity == "warning"


@pytest.mark.parametrize(
    ("model", "parser", "state"),
    [
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder", "ok"),
        ("Qwen/Qwen3-32B", "hermes", "ok"),
        ("moonshotai/Kimi-K2-Instruct", "kimi_k2", "ok"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax-m2", "ok"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "hermes", "not-applicable"),
        ("some/unheard-of-model", "hermes", "not-applicable"),
    ],
)
def test_a_parser_that_fits_is_quiet(model: str, parser: str, state: str) -> None:
    assert tool_parser.CHECK.run(parsed(model, parser)).state == state


def test_no_parser_and_a_plugin_are_no_fault() -> None:
    assert tool_parser.CHECK.run(Context(parse_command("vllm serve Qwen/Qwen3-Coder-Next"))).state == "not-applicable"
    with_plugin = SERVE.format("Qwen/Qwen3-Coder-Next", "mine") + " --tool-parser-plugin /x/mine.py"
    assert tool_parser.CHECK.run(Context(parse_command(with_plugin))).state == "not-applicable"


def gain(text: str) -> str:
    return draft_gain.CHECK.run(Context(parse_env_text(text))).state


def test_slower_with_drafts_is_told_and_faster_is_ok() -> None:
    assert gain("without_mtp : 342.2 tokens/s\nwith_mtp : 128.3 tokens/s\n") == "finding"
    assert gain("without_mtp : 128.3 tokens/s\nwith_mtp : 342.2 tokens/s\n") == "ok"
    assert gain("result : baseline 48 tok/s\nnote : with speculative decoding 31 tok/s\n") == "finding"
    assert gain("without_mtp : 342.2 tokens/s\n") == "unknown"
