"""What a log is read as: recorded shapes of logs, and properties that hold for any text."""

# ruff: noqa: E501  (recorded lines)
from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridctl.doctor.knowledge import Symptom
from hybridctl.doctor.logreader.prefixes import strip_codes
from hybridctl.doctor.logs import LogReading, read_log
from hybridctl.doctor.phases import is_past

LOGS = Path(__file__).parents[1] / "data" / "logs"
NONE: frozenset[str] = frozenset()
SHARDS = Symptom("shards", "Detected some but not all shards", r"shards of (?P<layer>\S+) are quantized")
WRAPPER = Symptom("wrapper", "Engine core initialization failed", "")
NCCL = Symptom("nccl", "vLLM is using nccl==", "")
ALL = [SHARDS, WRAPPER, NCCL]


def read(text: str | bytes, symptoms: list[Symptom] | None = None, benign: frozenset[str] = NONE) -> LogReading:
    data = text.encode() if isinstance(text, str) else text
    return read_log(io.BytesIO(data), ALL if symptoms is None else symptoms, benign)


def recorded(name: str) -> LogReading:
    return read((LOGS / f"{name}.txt").read_bytes())


@pytest.mark.parametrize("name", ["tp_workers_chain", "compose", "kubectl", "journald", "colours_crlf"])
def test_the_first_cause_in_a_worker_is_found_in_every_dress(name: str) -> None:
    reading = recorded(name)
    error = reading.innermost
    assert error is not None
    assert (error.process, error.type, error.message) == (
        "Worker_TP0 pid=131",
        "KeyError",
        "'layers.0.linear_attn.in_proj'",
    )
    assert error.chain == 0
    assert error.frame.endswith("quantization/utils.py:88 in pick")
    linked = next(e for e in reading.errors if e.key == error.key and e.chain == 1)
    assert linked.type == "ValueError"
    assert linked.message.endswith("\nAll shards of fused layers to have the same precision.")
    assert {e.wrapper for e in reading.errors if e.process != "Worker_TP0 pid=131" and "TP1" not in e.process} == {True}
    assert reading.reached == "load"
    assert not is_past("load", "load")


def test_hits_are_weighed_by_where_they_stand() -> None:
    hits = recorded("tp_workers_chain").hits
    assert {(h.entry_id, h.weight) for h in hits} == {("shards", 3), ("wrapper", 2), ("nccl", 1)}
    assert [h.groups["layer"] for h in hits if h.entry_id == "shards"] == ["model.layers.0.linear_attn.in_proj"] * 2


@pytest.mark.parametrize(
    ("name", "kind", "type_", "message"),
    [
        ("sglang", "exception", "ValueError", "Weight output_partition_size = 8"),
        ("dies_while_serving", "exception", "torch.AcceleratorError", "CUDA error: an illegal memory access"),
        (
            "excerpt_no_last_line",
            "fragment",
            None,
            'File "/usr/local/lib/python3.12/dist-packages/vllm/model_executor/',
        ),
        ("dmesg", "fault", "NVRM Xid", "NVRM: Xid (PCI:0000:01:00): 79"),
        ("ptxas", "exception", "triton.runtime.errors.PTXASError", "PTXAS error: Internal Triton"),
        ("gcc_before_exception", "fault", "compiler", "/tmp/tmp_bcihhdm/main.c:5:10: fatal error: Python.h"),
        ("segfault", "fault", "Segmentation fault", "!!!!!!! Segfault encountered"),
        ("cpp_abort", "fault", "c10::Error", "CUDA error: an illegal memory access was encountered"),
        ("ollama", "fault", "llama.cpp", "llama_model_load: error loading model"),
        ("ray", "exception", "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 1.88 GiB."),
        ("rust_panic", "fault", "Rust panic", "thread 'main' panicked"),
    ],
)
def test_the_error_that_began_the_fall(name: str, kind: str, type_: str | None, message: str) -> None:
    error = recorded(name).innermost
    assert error is not None
    assert (error.kind, error.type) == (kind, type_)
    assert error.message.startswith(message)
    assert recorded(name).looks_like_log


@pytest.mark.parametrize("name", ["healthy_benign_error", "slow_but_sound", "only_warning", "restarts"])
def test_a_sound_log_has_no_innermost_error(name: str) -> None:
    reading = recorded(name)
    assert reading.innermost is None
    assert not [e for e in reading.errors if not e.wrapper]
    assert all(h.weight == 1 for h in reading.hits)


def test_an_error_line_counts_until_the_server_came_up() -> None:
    line = "(EngineCore_DP0 pid=60) ERROR 11-20 10:01:44 [registry.py:12] NIXL side channel is not there\n"
    up = "(APIServer pid=1) INFO:     Application startup complete.\n"
    assert read(line).innermost is not None
    assert read(line + up).errors == []
    assert read(up + line).innermost is not None


def test_lines_of_benign_entries_never_make_the_innermost_error() -> None:
    benign = Symptom("noise", "NIXL side channel", "")
    log = "ERROR 11-20 10:01:44 [registry.py:12] NIXL side channel is not there\nValueError: the other one\n"
    reading = read(log, [benign], frozenset({"noise"}))
    assert reading.innermost is not None
    assert reading.innermost.type == "ValueError"
    assert reading.errors[0].benign
    assert [h.weight for h in reading.hits] == [1]


def test_phases_carry_what_the_log_printed() -> None:
    phases = {p.name: p for p in recorded("slow_but_sound").phases}
    assert list(phases) == ["config", "load", "profile", "kv-cache", "capture", "ready", "serving"]
    assert phases["load"].seconds == 1242.1
    assert phases["config"].seconds == 59.0  # until the first worker began to load
    assert phases["capture"].seconds == 9.0
    assert phases["serving"].seconds is None
    assert phases["load"].stamp == "11-20 10:01:00"


def test_a_phase_is_reached_when_the_last_worker_is_there() -> None:
    begin = "".join(
        f"(Worker_TP{i} pid={i}) INFO 11-20 10:00:00 [x.py:1] Starting to load model m...\n" for i in (1, 2)
    )
    first = "(Worker_TP1 pid=1) INFO 11-20 10:01:00 [x.py:1] Model loading took 3.0 GiB and 4.0 seconds\n"
    second = first.replace("TP1 pid=1", "TP2 pid=2")
    assert read(begin + first).reached == "load"
    assert read(begin + first + second).reached == "profile"
    assert read(begin + first + second).facts.value("log.reached") == "profile"


FACTS = {
    "pkg.vllm": "0.11.0",
    "engine": "vllm",
    "model.name": "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "flag.tensor-parallel-size": 2,
    "flag.max-model-len": 32768,
    "flag.enable-expert-parallel": True,
    "flag.speculative-config.method": "qwen3_next_mtp",
    "flag.speculative-config.num_speculative_tokens": 2,
    "flag.dtype": "bfloat16",
    "flag.kv-cache-dtype": "auto",
    "pkg.nccl": "2.27.3",
    "platform.container": True,
    "log.weights_gib": 74.8801,
    "log.kv_cache_gib": 42.1,
    "log.kv_cache_tokens": 1676933,
}


def test_facts_are_what_the_log_states() -> None:
    facts = recorded("dies_while_serving").facts
    assert {k: facts.value(k) for k in FACTS} == FACTS
    assert not facts.has("flag.api-key")
    assert not facts.has("command.form")
    assert facts.value("flag.quantization") is None


def test_facts_of_sglang() -> None:
    facts = recorded("sglang").facts
    assert facts.value("engine") == "sglang"
    assert facts.value("model.name") == "Qwen/Qwen3.5-397B-A17B-FP8"
    assert facts.value("flag.tp-size") == facts.value("flag.tensor-parallel-size") == 8
    assert not facts.has("flag.quantization")
    assert not facts.has("flag.api-key")


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with", "gpu.cc", "12.0"),
        (
            "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with",
            "gpu.names",
            ["NVIDIA GeForce RTX 5090"],
        ),
        ("ValueError: Your Tesla T4 GPU has compute capability 7.5.", "gpu.cc", "7.5"),
        (
            "  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes",
            "gpu.names",
            ["NVIDIA GeForce RTX 3090"],
        ),
        (
            "Config file not found at E=64,N=640,device_name=NVIDIA_H100_80GB_HBM3.json",
            "gpu.names",
            ["NVIDIA H100 80GB HBM3"],
        ),
        ("WARNING 06-03 08:39:32 [x.py:1] Using 'pin_memory=False' as WSL is detected.", "platform.wsl", True),
        (
            "vllm 0.11.0 requires torch==2.8.0, but you have torch 2.9.0+cu129 which is incompatible.",
            "pkg.torch",
            "2.9.0+cu129",
        ),
        ("your NVIDIA driver on your system is too old (found version 12080)", "driver.cuda", "12.8"),
        ("(APIServer pid=1) INFO 06-01 01:01:01 [u.py:1]  █ █ █  version 0.32.0+cu129", "pkg.vllm", "0.32.0+cu129"),
        ('  File "/opt/env/lib/python3.11/site-packages/x.py", line 1, in f', "platform.python", "3.11"),
        ("GPU 0 has a total capacity of 23.52 GiB of which", "gpu.memory_gib", 23.52),
        ("INFO 06-03 08:39:32 [__init__.py:244] Automatically detected platform rocm.", "gpu.vendor", "amd"),
    ],
)
def test_single_facts(line: str, key: str, value: object) -> None:
    assert read(line).facts.value(key) == value


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.txt")), ids=lambda p: p.stem)
def test_every_quote_stands_in_the_log(path: Path) -> None:
    data = path.read_bytes()
    plain = strip_codes(data.decode().replace("\r\n", "\n"))
    lines = plain.split("\n")
    reading = read(data)
    for fact in reading.facts:
        assert fact.origin.line is not None
        assert fact.origin.quote in lines[fact.origin.line - 1]
    for hit in reading.hits:
        assert hit.text in lines[hit.line - 1]
    if reading.innermost:
        assert reading.innermost.message.split("\n")[0] in plain


@pytest.mark.parametrize(
    ("log", "type_", "message"),
    [
        ("ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (161).", "ValueError", "max_num_seqs (256)"),
        ("RuntimeError: GDN prefill needs\n(sm100 + CUDA 13).\nGot sm90.", "RuntimeError", "GDN prefill needs\n(sm100 + CUDA 13).\nGot"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120'", "nvcc", "nvcc fatal"),
        ('x.cuh(12): error: namespace "cuda" has no member "n32_t"', "compiler", "x.cuh(12): error"),
        ("Segmentation fault (core dumped)", "Segmentation fault", "Segmentation fault"),
        ("Killed", "Killed", "Killed"),
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "linker", "/usr/bin/ld"),
        ("vllm: error: unrecognized arguments: --swap-space", "argument error", "vllm: error"),
        ("bash: vllm: command not found", "shell", "bash: vllm"),
        ("docker: Error response from daemon: could not select device driver", "container engine", "docker: Error"),
        ("requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url", "requests.exceptions.HTTPError", "401"),
        ('Traceback (most recent call last):\n  File "a.py", line 1, in f\n    x\nzmq.error.Odd: no', "zmq.error.Odd", "no"),
        ('Traceback (most recent call last):\nFile "a.py", line 1, in f\nx = y[0]\nIndexError: out', "IndexError", "out"),
        ("> (EngineCore pid=3) ERROR 09-17 05:40:55 [core.py:7] ValueError: quoted", "ValueError", "quoted"),
        ("[rank0]: Traceback (most recent call last):\n[rank0]:   File \"a\", line 1\n[rank0]: OSError: x", "OSError", "x"),
    ],
)  # fmt: skip
def test_excerpts(log: str, type_: str, message: str) -> None:
    error = read(log).innermost
    assert error is not None
    assert error.type == type_
    assert error.message.startswith(message)


def test_wrappers_alone_are_no_innermost_error() -> None:
    reading = read("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
    assert reading.innermost is None
    assert [e.wrapper for e in reading.errors] == [True]
    assert [h.weight for h in reading.hits] == [2]


def test_a_caught_exception_of_a_process_that_goes_on_is_not_the_cause() -> None:
    caught = "(APIServer pid=1) ERROR 11-20 10:00:00 [a.py:1] ValueError: bad request\n"
    served = "(APIServer pid=1) INFO 11-20 10:01:00 [l.py:1] Engine 000: Avg prompt throughput: 4.7 tokens/s\n"
    fatal = (
        "(EngineCore pid=2) ERROR 11-20 10:02:00 [core.py:1] EngineCore encountered a fatal error.\n"
        "(EngineCore pid=2) ERROR 11-20 10:02:00 [core.py:1] MemoryError: real\n"
    )
    error = read(caught + served + fatal).innermost
    assert error is not None
    assert error.type == "MemoryError"


def test_a_progress_bar_without_line_ends_hides_nothing() -> None:
    bar = "".join(f"Loading safetensors checkpoint shards: {i}% Completed | {i}/100 [00:0<00:0]\r" for i in range(100))
    reading = read(bar + "\r\nValueError: after the bar\r\n")
    assert reading.innermost is not None
    assert reading.innermost.line == 2
    assert reading.reached == "load"


def test_a_pattern_that_only_one_of_many_like_lines_meets() -> None:
    lines = [f"INFO 09-22 10:10:10 [l.py:1] Prefix cache hit rate: {i % 90 + 1}.5% of 7" for i in range(60_000)]
    lines[30_000] = "INFO 09-22 10:10:10 [l.py:1] Prefix cache hit rate: 0.0% of 7"
    any_rate, none = (
        Symptom("any", "Prefix cache hit rate", ""),
        Symptom("none", "Prefix cache hit rate", r"rate: 0\.0%"),
    )
    never = Symptom("never", "Prefix cache hit rate", "of 8$")
    reading = read("\n".join(lines), [any_rate, none, never])
    assert [h.line for h in reading.hits if h.entry_id == "none"] == [30_001]
    assert {h.entry_id for h in reading.hits} == {"any", "none"}


def test_utf16_from_a_windows_shell() -> None:
    reading = read("INFO x\nValueError: wide\n".encode("utf-16"))
    assert reading.innermost is not None
    assert reading.innermost.message == "wide"


def test_a_huge_line_is_cut_and_the_next_one_is_read() -> None:
    reading = read(b"x" * 10_000_000 + b"\nValueError: behind it\n")
    assert reading.innermost is not None
    assert reading.innermost.line == 2
    assert reading.truncated


# One process's lines keep their order; times tell which process failed first.
def _story(process: str, minute: int, type_: str) -> list[str]:
    head = f"({process}) ERROR 11-20 10:{minute:02}:00 [m.py:5] "
    body = ["Traceback (most recent call last):", '  File "m.py", line 1, in f', "    g()", f"{type_}: in {process}"]
    return [head + x for x in body]


@given(st.integers(0, 2**32), st.permutations([1, 2, 3, 4]))
@settings(max_examples=60, deadline=None)
def test_interleaving_does_not_change_the_answer(seed: int, minutes: list[int]) -> None:
    names = ["Worker_TP0 pid=10", "Worker_TP1 pid=11", "EngineCore_DP0 pid=5", "APIServer pid=1"]
    types = ["ValueError", "KeyError", "OSError", "TypeError"]
    queues = [_story(n, m, t) for n, m, t in zip(names, minutes, types, strict=True)]
    shuffle = random.Random(seed)
    log = []
    while queues:
        queue = shuffle.choice(queues)
        log.append(queue.pop(0))
        queues = [q for q in queues if q]
    error = read("\n".join(log)).innermost
    assert error is not None
    first = minutes.index(1)
    assert (error.process, error.type, len(error.lines)) == (names[first], types[first], 4)


PIECES = st.sampled_from(
    [
        "Traceback (most recent call last):", '  File "a.py", line 1, in f', "ValueError: x", "(EngineCore pid=1) ", "ERROR 09-22 13:42:43 [core.py:718] ",
        "\r", "\x1b[31m", "During handling of the above exception, another exception occurred:", "[rank0]: ", "Killed", "a-1  | ",
        "INFO 99-99 99:99:99 [x:1] ", "non-default args: {'a': [", "server_args=ServerArgs(tp_size=", "█ version 0.1.0", "100%|", "\x00", "msg=\"",
        "time=2026-02-27T20:51:14.940+08:00 level=INFO source=s.go:1 msg=\"", "Detected some but not all shards", "{", "\n", "│ ",
        "Initializing a V1 LLM engine (v0.1.0) with config: model='a", "File “x”, line 3", "2026-13-45T99:99:99Z ",
    ]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=40), max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_can_be_read(pieces: list[str]) -> None:
    reading = read("".join(pieces).encode("utf-8", "surrogatepass"))
    assert reading.lines >= 0
    assert all(e.line <= reading.lines for e in reading.errors)


@given(st.binary(max_size=3000))
@settings(max_examples=100, deadline=None)
def test_any_bytes_can_be_read(data: bytes) -> None:
    read(data)
