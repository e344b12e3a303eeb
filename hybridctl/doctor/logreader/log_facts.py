"""What a log states about the machine, the packages, the model and the launch. Only what is printed."""

# ruff: noqa: E501  (tables of patterns read best a row a line)
from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hybridctl.doctor.facts.model import Facts, Origin, Value
from hybridctl.doctor.logreader.launch_args import fields, flatten, is_secret, literal
from hybridctl.doctor.logreader.records import Line

Statement = tuple[str, Value, str]
"""Key, value, and the text that says so."""
MOST_PER_KEY = 8


@dataclass(frozen=True, slots=True)
class Rule:
    """``text`` is a literal part of the line; ``pattern`` must match besides; ``says`` makes statements of the match."""

    text: str
    pattern: re.Pattern[str]
    says: Callable[[re.Match[str]], Iterator[Statement]]


def _rule(text: str, pattern: str, *statements: tuple[str, Callable[[re.Match[str]], Value | None]]) -> Rule:
    def says(m: re.Match[str]) -> Iterator[Statement]:
        for key, value_of in statements:
            value = value_of(m)
            if value is not None:
                yield key, value, m[0]

    return Rule(text, re.compile(pattern), says)


def _one(m: re.Match[str]) -> Value | None:
    return m[1]


def _number(m: re.Match[str]) -> Value | None:
    try:
        return float(m[1].replace(",", ""))
    except ValueError:
        return None


def _names(m: re.Match[str]) -> Value | None:
    return [m[1].replace("_", " ").strip()]


def _const(value: Value) -> Callable[[re.Match[str]], Value | None]:
    return lambda _: value


def _sm(m: re.Match[str]) -> Value | None:
    digits = m["sm"]
    return f"{digits[:-1]}.{digits[-1]}"


def _cuda_of_int(m: re.Match[str]) -> Value | None:
    number = int(m[1])
    return f"{number // 1000}.{number % 1000 // 10}"


_VENDORS = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel", "tpu": "tpu", "npu": "ascend"}
_ENGINE_FLAGS = {  # fields of vLLM's engine line whose value is in force, whatever the launch line said
    "tensor_parallel_size": "tensor-parallel-size", "pipeline_parallel_size": "pipeline-parallel-size",
    "data_parallel_size": "data-parallel-size", "kv_cache_dtype": "kv-cache-dtype", "quantization": "quantization",
    "dtype": "dtype", "enforce_eager": "enforce-eager", "enable_prefix_caching": "enable-prefix-caching",
    "trust_remote_code": "trust-remote-code",
}  # fmt: skip
_TRUE_ONLY = frozenset({"enforce_eager", "trust_remote_code", "enable_prefix_caching"})


# SGLang's fields that mean the same as a flag of vLLM.
_SGLANG_SAME = {
    "tp-size": "tensor-parallel-size", "dp-size": "data-parallel-size", "pp-size": "pipeline-parallel-size",
    "ep-size": "expert-parallel-size", "context-length": "max-model-len", "max-running-requests": "max-num-seqs",
}  # fmt: skip


def _engine_line(m: re.Match[str]) -> Iterator[Statement]:
    yield "pkg.vllm", m["version"], f"LLM engine (v{m['version']})"
    yield "engine", "vllm", f"LLM engine (v{m['version']})"
    for name, raw, piece in fields(m["config"], "="):
        value = literal(raw)
        if name == "model" and isinstance(value, str):
            yield "model.name", value, piece
        elif name == "speculative_config":
            yield from _speculative(raw)
        elif name in _ENGINE_FLAGS and value is not None and not (name in _TRUE_ONLY and value is not True):
            if isinstance(value, str):
                value = value.removeprefix("torch.")
            if isinstance(value, (bool, int, float, str)):
                yield f"flag.{_ENGINE_FLAGS[name]}", value, piece


def _speculative(raw: str) -> Iterator[Statement]:
    inside = raw.partition("(")[2]
    for name, text, piece in fields(inside, "="):
        value = literal(text)
        target = {
            "method": "method",
            "num_spec_tokens": "num_speculative_tokens",
            "num_speculative_tokens": "num_speculative_tokens",
        }.get(name)
        if target and isinstance(value, (int, str)):
            yield f"flag.speculative-config.{target}", value, piece


def _non_default(m: re.Match[str]) -> Iterator[Statement]:
    for name, raw, piece in fields(m["args"], ":"):
        value = literal(raw)
        if is_secret(name):
            continue
        if name in ("model", "model_tag") and isinstance(value, str):
            yield "model.name", value, piece
            continue
        if value is raw and raw[:1] not in "'\"" and not re.fullmatch(r"[\w.+-]+", raw):
            continue  # a repr that is no literal
        for flag, flat in flatten(name, value):
            head, dot, rest = flag.partition(".")
            yield f"flag.{head.replace('_', '-')}{dot}{rest}", flat, piece


def _server_args(m: re.Match[str]) -> Iterator[Statement]:
    yield "engine", "sglang", "server_args=ServerArgs("
    for name, raw, piece in fields(m["args"], "="):
        value = literal(raw)
        if name == "model_path" and isinstance(value, str):
            yield "model.name", value, piece
        elif (
            value is None
            or value is False
            or is_secret(name)
            or name in ("host", "port", "log_level", "tokenizer_path")
        ):
            continue
        elif isinstance(value, (bool, int, float, str)) and not (
            value == 1 and name in ("dp_size", "pp_size", "ep_size")
        ):
            flag = name.replace("_", "-")
            yield f"flag.{flag}", value, piece
            if flag in _SGLANG_SAME:
                yield f"flag.{_SGLANG_SAME[flag]}", value, piece


_V = r"(\d+\.\d+[\w.+-]*\w)"
RULES: tuple[Rule, ...] = (
    _rule("server version", rf"vLLM (?:API )?server version {_V}", ("pkg.vllm", _one), ("engine", _const("vllm"))),
    _rule("serving model", r"serving model (\S+)", ("model.name", _one)),
    _rule("█", rf"█\s+version {_V}", ("pkg.vllm", _one), ("engine", _const("vllm"))),
    _rule("█", r"█\s+model   (\S+)", ("model.name", _one)),
    Rule("LLM engine (v", re.compile(r"Initializing an? (?:V[01] )?LLM engine \(v(?P<version>[^)]+)\) with config: (?P<config>.*)"), _engine_line),
    Rule("non-default args:", re.compile(r"non-default args: \{(?P<args>.*)"), _non_default),
    Rule("server_args=ServerArgs(", re.compile(r"server_args=ServerArgs\((?P<args>.*)"), _server_args),
    _rule("Starting to load model", r"Starting to load model (\S+?)\.\.\.", ("model.name", _one)),
    _rule("Automatically detected platform", r"Automatically detected platform (\w+)\.",
          ("gpu.vendor", lambda m: _VENDORS.get(m[1])), ("log.device", _one)),
    _rule("not supported on CPU", r"Pin memory is not supported on CPU", ("log.device", _const("cpu"))),
    _rule("library=cpu", r"inference compute.{0,40}library=cpu", ("log.device", _const("cpu"))),
    _rule("Avg generation throughput", r"Avg generation throughput: ([\d.]+) tokens/s, Running: 1 reqs", ("log.tokens_per_s", _number)),
    _rule("Avg prompt throughput: 0.0 tokens/s", r"generation throughput: ([\d.]+) tokens/s, Running: (?!1 )[1-9]", ("log.tokens_per_s", _number)),
    _rule("tokens per second", r"(?<!prompt )eval time = .{0,80}?([\d.]+) tokens per second", ("log.tokens_per_s", _number)),
    _rule("using nccl==", rf"vLLM is using nccl=={_V}", ("pkg.nccl", _one)),
    _rule("NCCL version", r"NCCL version (\d+\.\d+\.\d+)", ("pkg.nccl", _one)),
    _rule("PyTorch version", rf"PyTorch version {_V} available", ("pkg.torch", _one)),
    _rule(".dist-info", r"/(?P<name>[A-Za-z_]\w*)-(?P<version>\d[\w.+]*)\.dist-info"),
    _rule("which is incompatible", r"but you have ([A-Za-z][\w.-]*) (\d\S*) which is incompatible"),
    _rule("-packages/", r"/python(3\.\d+)/(?:site|dist)-packages/", ("platform.python", _one)),
    _rule("-packages/vllm/", r"(?:site|dist)-packages/vllm/", ("engine", _const("vllm"))),
    _rule("sglang/srt/", r"sglang/srt/", ("engine", _const("sglang"))),
    _rule("dist-packages/vllm", r"/usr/local/lib/python3\.\d+/dist-packages/vllm", ("platform.container", _const(True))),
    _rule("-workspace/", r"[\" '](/vllm-workspace/|/sgl-workspace/)", ("platform.container", _const(True))),
    _rule("level=", r"level=\w+ source=\w+\.go:\d+", ("engine", _const("ollama"))),
    _rule("WSL", r"WSL is detected|microsoft-standard-WSL2", ("platform.wsl", _const(True))),
    _rule("found version", r"NVIDIA driver on your system is too old \(found version (\d{4,5})\)", ("driver.cuda", _cuda_of_int)),
    _rule("Driver Version:", r"Driver Version: (\d{3}\.\d+(?:\.\d+)?)", ("driver.version", _one)),
    _rule("CUDA Version:", r"CUDA Version: (\d+\.\d+)", ("driver.cuda", _one)),
    _rule("kernel version", r"NVRM version: .{0,80}?(\d{3}\.\d+(?:\.\d+)?)", ("driver.version", _one)),
    _rule("with CUDA capability sm_", r"(?:^|: )\s*(?P<gpu>[A-Z][\w .-]+?) with CUDA capability sm_(?P<sm>\d{2,3})a? is not compatible",
          ("gpu.names", lambda m: [m["gpu"].strip()]), ("gpu.cc", _sm)),
    _rule("compute capability", r"(?:Your |Device \d+: )([A-Z][\w .-]+?)(?: GPU)?(?: has|,) compute capability (?P<cc>\d+\.\d)",
          ("gpu.names", _names), ("gpu.cc", lambda m: m["cc"])),
    _rule("gpu-name=sm_", r"--gpu-name=sm_(?P<sm>\d{2,3})", ("gpu.cc", _sm)),
    _rule("device_name=", r"device_name=((?:NVIDIA|AMD|Tesla|Intel)[A-Za-z0-9_-]*)", ("gpu.names", _names)),
    _rule("has a total capacity of", r"has a total capacity of (\d+\.\d+) GiB", ("gpu.memory_gib", _number)),
    _rule("Available KV cache memory", r"Available KV cache memory: (-?\d+(?:\.\d+)?) GiB", ("log.kv_cache_gib", _number)),
    _rule("KV cache size", r"KV cache size: ([\d,]+) tokens", ("log.kv_cache_tokens", _number)),
    _rule("Model loading took", r"Model loading took (\d+(?:\.\d+)?) Gi?B", ("log.weights_gib", _number)),
)  # fmt: skip
NOTES = (
    *tuple(dict.fromkeys(r.text for r in RULES if r.text not in ("-packages/", "level=", "WSL"))),
    "WSL is detected",
    "level=INFO source=",
)
_PACKAGES = (".dist-info", "which is incompatible")


def state(lines: Sequence[Line], facts: Facts, first_line: int = 0) -> None:
    """Add what the lines from ``first_line`` on (the last start in the log) state."""
    whole = "\n".join(x.text for x in lines)
    rules = [r for r in RULES if r.text in whole]
    seen: set[tuple[str, str, str]] = set()
    counts: dict[str, int] = {}
    for line in lines:
        if line.number < first_line:
            continue
        for rule in rules:
            if rule.text not in line.text:
                continue
            m = rule.pattern.search(line.text)
            if m is None:
                continue
            statements = _package(m) if rule.text in _PACKAGES else rule.says(m)
            for key, value, quote in statements:
                mark = (key, str(value), quote)
                if mark in seen or counts.get(key, 0) >= MOST_PER_KEY:
                    continue
                seen.add(mark)
                counts[key] = counts.get(key, 0) + 1
                facts.add(key, value, Origin("log", line.number, quote))


def _package(m: re.Match[str]) -> Iterator[Statement]:
    name = re.sub(r"[-_.]+", "-", m[1]).lower()
    yield f"pkg.{name}", m[2].rstrip("."), m[0]
