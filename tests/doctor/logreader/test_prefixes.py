"""Prefixes come off in any order and leave the indentation alone."""

# ruff: noqa: E501  (recorded lines)
from __future__ import annotations

import pytest

from hybridctl.doctor.logreader.prefixes import clock_of, parse_line, rank_of

FRAME = '  File "x.py", line 1, in f'


@pytest.mark.parametrize(
    ("prefix", "process", "container", "level"),
    [
        ("(EngineCore_DP0 pid=510690) ERROR 09-22 13:42:43 [core.py:718] ", "EngineCore_DP0 pid=510690", "", "ERROR"),
        ("(VllmWorkerProcess pid=7819) INFO 02-18 06:48:31 model_runner.py:1115] ", "VllmWorkerProcess pid=7819", "", "INFO"),
        ("(EngineCore_0 pid=1) (VllmWorker TP1 pid=29) INFO 08-25 11:01:26 [v1/a/.../b.py:548] ", "VllmWorker TP1 pid=29", "", "INFO"),
        ("(VllmWorker rank=5 pid=3073) ", "VllmWorker rank=5 pid=3073", "", ""),
        ("(RayWorkerWrapper pid=14, ip=10.0.0.1) ERROR 03-11 15:25:31 [w.py:620] ", "RayWorkerWrapper pid=14", "", "ERROR"),
        ("[VLLM LOG] (Worker_TP3 pid=51793) ERROR 02-25 02:56:51 [m.py:783] ", "Worker_TP3 pid=51793", "", "ERROR"),
        ("qwen3.8-flash-next  | (Worker_TP0_EP0 pid=331) ERROR 09-06 00:38:50 m.py:944] ", "Worker_TP0_EP0 pid=331", "qwen3.8-flash-next", "ERROR"),
        ("qwen-6c9d7b8f5d-x7k2p vllm (APIServer pid=1) ", "APIServer pid=1", "qwen-6c9d7b8f5d-x7k2p", ""),
        ("[pod/qwen-0/vllm] (APIServer pid=1) ", "APIServer pid=1", "qwen-0/vllm", ""),
        ("Aug 17 18:42:18 host vllm[8052]: (APIServer pid=8052) ", "APIServer pid=8052", "", ""),
        ("2025-11-29T10:00:00.123456789Z stderr F (EngineCore pid=4) ", "EngineCore pid=4", "", ""),
        ("2025-03-08 02:04:48,693 - __main__ - INFO - [2025-03-08 02:04:48 TP0] ", "TP0", "", "INFO"),
        ("[2026-08-27 10:00:00 DP1 TP3 EP3] ", "DP1 TP3 EP3", "", ""),
        ("[rank0]: ", "rank0", "", ""),
        ("\x1b[1;36m(EngineCore pid=9)\x1b[0;0m ERROR 09-17 05:40:55 [c.py:1] ", "EngineCore pid=9", "", "ERROR"),
        ("(EngineCore pid=9)ESC[0;0m ERROR 09-17 05:40:55 [c.py:1] ", "EngineCore pid=9", "", "ERROR"),
        ("> ERROR 09-17 05:40:55 [v1/engine/core.py:712] ", "", "", "ERROR"),
    ],
)  # fmt: skip
def test_prefixes(prefix: str, process: str, container: str, level: str) -> None:
    line = parse_line(7, prefix + FRAME + "   ")
    assert (line.process, line.container, line.level, line.body) == (process, container, level, FRAME)


@pytest.mark.parametrize(
    "text",
    [
        "    5 | #include <Python.h>",
        "ValueError: a | b",
        "| NVIDIA-SMI 570.1 |",
        "KeyError: 'x'",
        FRAME,
        "torch.OutOfMemoryError: CUDA",
    ],
)
def test_what_is_no_prefix_stays(text: str) -> None:
    assert parse_line(1, text).body == text


def test_clocks_can_be_compared() -> None:
    assert clock_of("09-22 13:42:43") == clock_of("2025-09-22T13:42:43Z") == clock_of("Sep 22 13:42:43")
    assert clock_of("13-45 99:99:99") is None
    assert clock_of("") is None


def test_workers_stand_deeper_than_the_engine_and_the_server() -> None:
    order = ["Worker_TP0 pid=1", "EngineCore_DP0 pid=1", "", "APIServer pid=1"]
    assert sorted(["APIServer pid=1", "", "EngineCore_DP0 pid=1", "Worker_TP0 pid=1"], key=rank_of) == order
