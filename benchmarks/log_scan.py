"""How fast a huge log is read, and in how much memory.

usage: log_scan.py [--megabytes N] [--symptoms N] [--out FILE]

Writes a log of N MB of varied vLLM lines (unique numbers, addresses, request ids, some prompts) with one fault in the
middle, reads it in a fresh process three times, and prints JSON: seconds, MB/s, peak resident set, and whether the fault was found.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FAULT = """(Worker_TP1 pid=132) ERROR 09-22 13:42:43 [multiproc_executor.py:597] Traceback (most recent call last):
(Worker_TP1 pid=132) ERROR 09-22 13:42:43 [multiproc_executor.py:597]   File "/opt/env/vllm/worker.py", line 61, in load_model
(Worker_TP1 pid=132) ERROR 09-22 13:42:43 [multiproc_executor.py:597]     self.model = initialize_model(config)
(Worker_TP1 pid=132) ERROR 09-22 13:42:43 [multiproc_executor.py:597] ValueError: 640 is not divisible by block_n = 128
"""
ANCHOR = "is not divisible by block_n"


def piece(source: random.Random, lines: int) -> bytes:
    """Lines as a busy server prints them."""
    words = ["".join(source.choices("etaoinshrdlucmfwypvbgkjqxz", k=source.randrange(2, 9))) for _ in range(4000)]
    out = []
    for _ in range(lines):
        stamp = f"09-22 {source.randrange(24):02}:{source.randrange(60):02}:{source.randrange(60):02}"
        request, kind = f"{source.getrandbits(128):032x}", source.random()
        if kind < 0.40:
            out.append(
                f"(APIServer pid=1) INFO:     10.0.{source.randrange(255)}.{source.randrange(255)}:{source.randrange(65536)} - "
                '"POST /v1/chat/completions HTTP/1.1" 200 OK'
            )
        elif kind < 0.65:
            out.append(
                f"(APIServer pid=1) INFO {stamp} [loggers.py:127] Engine 000: Avg prompt throughput: {source.random() * 9999:.1f} "
                f"tokens/s, Avg generation throughput: {source.random() * 999:.1f} tokens/s, Running: {source.randrange(99)} reqs, "
                f"Waiting: {source.randrange(9)} reqs, GPU KV cache usage: {source.random() * 99:.1f}%, "
                f"Prefix cache hit rate: {source.random() * 99:.1f}%"
            )
        elif kind < 0.95:
            out.append(f"(APIServer pid=1) INFO {stamp} [async_llm.py:321] Added request chatcmpl-{request}.")
        elif kind < 0.98:
            prompt = " ".join(source.choice(words) for _ in range(30))
            out.append(
                f"(APIServer pid=1) INFO {stamp} [logger.py:43] Received request chatcmpl-{request}: prompt: '{prompt}'"
            )
        else:
            out.append(
                f"(EngineCore_DP0 pid=12) WARNING {stamp} [scheduler.py:512] Request {request} is preempted, {source.random():.3f}"
            )
    return ("\n".join(out) + "\n").encode()


def write_log(path: Path, megabytes: int) -> None:
    source, size = random.Random(20), 0
    blocks = [piece(source, 60_000) for _ in range(4)]
    with path.open("wb") as handle:
        broken = False
        while size < megabytes * 1_000_000:
            if not broken and size >= megabytes * 500_000:
                handle.write(FAULT.encode())
                broken = True
            size += handle.write(blocks[source.randrange(4)])


def peak_mib() -> float:
    """Peak resident set of this process alone (Linux; getrusage would count that of the parent before exec)."""
    m = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return round(int(m[1]) / 1024, 1) if m else 0.0


def measure(path: Path, symptoms: int) -> dict[str, object]:
    """Read the log in this process."""
    from hybridctl.doctor.knowledge import Symptom
    from hybridctl.doctor.logs import read_log

    source = random.Random(5)
    wanted = [
        Symptom(f"entry-{i}", "".join(source.choices("abcdefghijklmnopqrstuvwxyz _:", k=source.randrange(12, 40))), "")
        for i in range(symptoms - 1)
    ]
    wanted.append(Symptom("fault", ANCHOR, r"(?P<width>\d+) is not divisible"))
    before = peak_mib()
    begin = time.perf_counter()
    with path.open("rb") as stream:
        reading = read_log(stream, wanted, frozenset())
    seconds = time.perf_counter() - begin
    size = path.stat().st_size
    return {
        "bytes": size,
        "lines": reading.lines,
        "symptoms": symptoms,
        "seconds": round(seconds, 3),
        "mb_per_s": round(size / 1e6 / seconds, 1),
        "rss_before_mib": before,
        "rss_peak_mib": peak_mib(),
        "lines_looked_at": reading.read,
        "innermost": reading.innermost and reading.innermost.headline,
        "fault_hits": [(h.line, h.weight, dict(h.groups)) for h in reading.hits if h.entry_id == "fault"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--symptoms", type=int, default=400)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        sys.stdout.write(json.dumps(measure(options.read, options.symptoms)))
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        write_log(log, options.megabytes)
        command = [sys.executable, __file__, "--read", str(log), "--symptoms", str(options.symptoms)]
        runs = [
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(3)
        ]
    result = {
        "benchmark": "log_scan",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "runs": runs,
    }
    text = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
