from hybridctl.doctor.facts.command import parse_command
from hybridctl.doctor.findings import Evidence, Finding, Fix
from hybridctl.doctor.paste_ready import complete


def completed(line: str, command: str, *blamed: str) -> str | None:
    finding = Finding(
        "x", "x", "config", "error", "x", [Evidence(f"flag.{name}", "") for name in blamed], [Fix("do", command)]
    )
    complete(finding, parse_command(line))
    return finding.fix[0].command


def test_other_flags_of_the_user_stay() -> None:
    line = "vllm serve Q/M --tensor-parallel-size 2 --max-num-seqs 1024 --enable-prefix-caching --port 8000"
    assert completed(line, "vllm serve Q/M --max-num-seqs 856", "max-num-seqs") == (
        "vllm serve Q/M --max-num-seqs 856 --tensor-parallel-size 2 --enable-prefix-caching --port 8000"
    )


def test_a_blamed_flag_is_not_brought_back() -> None:
    assert completed("vllm serve Q/M --dtype half --port 1", "vllm serve Q/M", "dtype") == "vllm serve Q/M --port 1"


def test_a_flag_that_the_fix_leaves_out_is_not_brought_back() -> None:
    """The fault was seen in a log line, so no fact of the evidence names the flag."""
    finding = Finding("x", "x", "config", "error", "x", [], [Fix("Leave --quantization out.", "vllm serve Q/M")])
    complete(finding, parse_command("vllm serve Q/M --quantization awq --port 1"))
    assert finding.fix[0].command == "vllm serve Q/M --port 1"


def test_a_json_flag_comes_once_and_whole() -> None:
    line = """vllm serve Q/M --speculative-config '{"method":"mtp","num_speculative_tokens":3}' --dtype half"""
    result = completed(line, "vllm serve Q/M --dtype bfloat16", "dtype")
    assert (
        result
        == """vllm serve Q/M --dtype bfloat16 --speculative-config '{"method":"mtp","num_speculative_tokens":3}'"""
    )


def test_the_negated_form_counts_as_the_flag() -> None:
    line = "vllm serve Q/M --enable-prefix-caching"
    assert completed(line, "vllm serve Q/M --no-enable-prefix-caching") == "vllm serve Q/M --no-enable-prefix-caching"


def test_other_commands_are_left_alone() -> None:
    sglang = "python3 -m sglang.launch_server --model-path Q/M --tp-size 8 --trust-remote-code"
    assert completed(sglang, "vllm serve Q/M --enable-expert-parallel") == "vllm serve Q/M --enable-expert-parallel"
    assert completed("vllm serve Q/M --port 1", "uv pip install vllm") == "uv pip install vllm"
    assert completed("docker run vllm/vllm-openai:latest --model Q/M --port 1", "vllm serve Q/M") == "vllm serve Q/M"
