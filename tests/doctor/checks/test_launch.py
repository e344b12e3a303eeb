"""Flags and modules of a launch line against the release that is started."""

from __future__ import annotations

import pytest

from hybridctl.doctor.checks import Context
from hybridctl.doctor.checks.launch_flags import CHECK as FLAGS
from hybridctl.doctor.checks.launch_module import CHECK as MODULE
from hybridctl.doctor.facts.command import parse_command
from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.findings import Outcome


def judge(command: str, version: str = "", **more: str) -> Outcome:
    facts = parse_command(command)
    if version:
        facts.add("pkg.vllm", version, Origin("env", 1, version))
    for key, value in more.items():
        facts.add(key.replace("_", ".", 1), value, Origin("env", 1, value))
    return FLAGS.run(Context(facts))


def ids(outcome: Outcome) -> list[str]:
    return [f.id for f in outcome.findings]


class TestFlags:
    def test_removed(self) -> None:
        outcome = judge("vllm serve a/b-1 --enable-reasoning --reasoning-parser qwen3", "0.11.0")
        assert ids(outcome) == ["flag-removed"]
        found = outcome.findings[0]
        assert found.evidence[0].quote == "--enable-reasoning"
        assert "0.9.2" in found.cause
        assert "--reasoning-parser" in found.fix[0].text
        assert judge("vllm serve a/b-1 --enable-reasoning", "0.8.5").state == "ok"

    def test_too_new(self) -> None:
        outcome = judge("""vllm serve a/b-1 --engram-config '{"cpu_offload": true}'""", "0.28.0")
        assert ids(outcome) == ["flag-too-new"]
        assert "0.30.0" in outcome.findings[0].cause
        assert judge("""vllm serve a/b-1 --engram-config '{"cpu_offload": true}'""", "0.31.0").state == "ok"

    def test_no_release_takes_it_needs_no_version(self) -> None:
        outcome = judge("vllm serve a/b-1 --tensor-paralel-size 2")
        assert ids(outcome) == ["flag-unknown"]
        assert "--tensor-parallel-size" in outcome.findings[0].fix[0].text

    @pytest.mark.parametrize(
        ("flag", "word"),
        [
            ("--hybrid-enabled", "hybrid dispatcher"),
            ("--mem-fraction-static 0.9", "SGLang"),
            ("--tp-size 2", "SGLang"),
            ("--tp 2", "SGLang"),
            ("--ctx-size 8", "llama.cpp"),
        ],
    )
    def test_flags_of_other_programs_are_named(self, flag: str, word: str) -> None:
        outcome = judge(f"vllm serve a/b-1 {flag}", "0.33.0")
        assert ids(outcome) == ["flag-unknown"]
        assert word in outcome.findings[0].cause

    @pytest.mark.parametrize(
        "command",
        [
            "vllm serve a/b-1 -tp 2 -O3 --no-enable-prefix-caching --max_model_len 32k",
            "vllm serve a/b-1 --gpu-memory-util 0.9",
            "vllm serve a/b-1 --speculative-config.method mtp --help",
            "vllm serve a/b-1 --omni --strange 1",
        ],
    )
    def test_quiet(self, command: str) -> None:
        assert not judge(command, "0.30.0").findings

    @pytest.mark.parametrize(
        "version", ["vllm-backport latest-sm89", "0.1.dev20073+g8e685d198", "0.99.0", "0.30.1.dev5+gabc"]
    )
    def test_a_fork_or_a_nightly_may_take_what_no_release_takes(self, version: str) -> None:
        outcome = judge("vllm serve a/b-1 --ple-offload-embedding", version)
        assert outcome.state == "unknown"

    def test_another_image_may_too(self) -> None:
        assert not judge("docker run ghcr.io/x/vllm-special:1 --model a/b-1 --strange-thing 1").findings
        assert judge("docker run vllm/vllm-openai:latest --model a/b-1 --strange-thing 1").findings
        assert judge("docker run vllm/vllm-openai:v0.11.0 --model a/b-1 --enable-reasoning").findings

    def test_accepted_flags_are_accepted(self) -> None:
        assert not judge("vllm serve a/b-1 --enable-reasoning", "0.11.0", log_reached="load").findings

    def test_other_engines_and_pip_are_not_judged(self) -> None:
        assert judge("sglang serve --model-path a/b-1 --tp-size 4").state == "not-applicable"
        assert judge("pip install vllm==0.11.0 --torch-backend=cu129").state == "unknown"
        assert not judge("uv pip install vllm==0.11.0 --torch-backend=cu129\nvllm serve a/b-1").findings

    def test_the_finding_falls_with_its_flag(self) -> None:
        command = "vllm serve a/b-1 --enable-reasoning --seed 1"
        quote = judge(command, "0.11.0").findings[0].evidence[0].quote
        assert judge(command.replace(quote, ""), "0.11.0").state == "ok"

    def test_without_a_version_nothing_is_ok(self) -> None:
        assert judge("vllm serve a/b-1 --seed 1").state == "unknown"
        assert FLAGS.run(Context(Facts())).state == "unknown"


class TestModule:
    @pytest.mark.parametrize(
        ("version", "state"),
        [("0.33.0", "finding"), ("0.25.0", "finding"), ("0.24.0", "ok"), ("0.24.1", "unknown"), ("", "unknown")],
    )
    def test_the_demonstration_server_is_gone(self, version: str, state: str) -> None:
        facts = parse_command("python -m vllm.entrypoints.api_server --model a/b-1")
        if version:
            facts.add("pkg.vllm", version, Origin("env", 1, version))
        outcome = MODULE.run(Context(facts))
        assert outcome.state == state
        if state == "finding":
            assert outcome.findings[0].fix[0].command == "vllm serve a/b-1"

    def test_elsewhere(self) -> None:
        assert MODULE.run(Context(parse_command("vllm serve a/b-1"))).state == "not-applicable"
        assert (
            MODULE.run(Context(parse_command("python -m sglang.launch_server --model-path a/b-1"))).state
            == "not-applicable"
        )
