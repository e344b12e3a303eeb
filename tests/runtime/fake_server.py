"""Stands in for vLLM: prints what a start of vLLM 0.32 printed, then answers. Arguments are those of a real launch.

FAKE_MODE: ready (default), crash (dies while loading), late-crash (dies while serving), no-proof, half-proof (one worker of two),
bad-plugin, other-plugin (somebody else's fails), unknown-name (what vLLM really does then), bad-endpoint (only /generate is
missing), no-completion, hung-completion (a worker raised, and the others wait for it), deaf (ignores SIGTERM), silent (never
answers), portless (never even takes its port), swallow (does not serve yet, and only the second SIGTERM ends it).
Every mode starts a "worker" in a session of its own, which ignores SIGTERM when FAKE_MODE is deaf.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE = os.environ.get("FAKE_MODE", "ready")
PORT = int(sys.argv[sys.argv.index("--port") + 1])
WORKER = """
import mmap, signal, sys, time
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
shared = open(sys.argv[2], "w+b")
shared.write(b"x" * 4096)
shared.flush()
mapped = mmap.mmap(shared.fileno(), 0)
time.sleep(600)
"""
SHARED = f"/dev/shm/vllm_dist_fake{os.getpid()}-tp:0-[0-1]-cpushm_0"
START = """\
INFO 11-29 22:00:01 [__init__.py:232] Automatically detected platform cpu.
(APIServer pid={pid}) INFO 11-29 22:00:04 [utils.py:240] non-default args: {{'port': 8000}}
(APIServer pid={pid}) INFO 11-29 22:00:05 [model.py:612] Resolved architecture: HybridCtlQwen3ForCausalLM
(EngineCore pid={worker}) INFO 11-29 22:00:09 [cpu_model_runner.py:60] Starting to load model /tmp/model...
Loading safetensors checkpoint shards:   0% Completed | 0/1 [00:00<?, ?it/s]\r\
Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00, 9.1it/s]
(EngineCore pid={worker}) INFO 11-29 22:00:10 [hybridctl.py:1] [HYBRID] routing by position
(EngineCore pid={worker}) INFO 11-29 22:00:10 [default_loader.py:430] Loading weights took 0.05 seconds
"""
CRASH = """\
(EngineCore pid={worker}) ERROR 11-29 22:00:12 [core.py:1380] EngineCore failed to start.
(EngineCore pid={worker}) ERROR 11-29 22:00:12 [core.py:1380] Traceback (most recent call last):
(EngineCore pid={worker}) ERROR 11-29 22:00:12 [core.py:1380]   File "core.py", line 936, in run_engine_core
(EngineCore pid={worker}) ERROR 11-29 22:00:12 [core.py:1380] ValueError: max_num_seqs (1024) exceeds available Mamba cache \
blocks (856). Each decode sequence requires one Mamba cache block, so CUDA graph capture cannot proceed.
(APIServer pid={pid}) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""
BAD_PLUGIN = """\
ERROR 11-29 22:00:06 [__init__.py:73] Failed to load plugin hybridctl
ERROR 11-29 22:00:06 [__init__.py:73] Traceback (most recent call last):
ERROR 11-29 22:00:06 [__init__.py:73] ImportError: cannot import name 'gone' from 'vllm'
"""
UNKNOWN = """\
(APIServer pid={pid}) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
(APIServer pid={pid})   Value error, Model architectures ['HybridCtlQwen3ForCausalLM'] are not supported for now.
"""
RANK = """\
(Worker_TP1 pid=7) ERROR 11-29 22:00:20 [multiproc_executor.py:1020] WorkerProc hit an exception.
(Worker_TP1 pid=7) ERROR 11-29 22:00:20 [multiproc_executor.py:1020] Traceback (most recent call last):
(Worker_TP1 pid=7) ERROR 11-29 22:00:20 [multiproc_executor.py:1020]   File "backend.py", line 1, in forward
(Worker_TP1 pid=7) ERROR 11-29 22:00:20 [multiproc_executor.py:1020] RuntimeError: rank 1 has no such kernel
"""
DONE = "(APIServer pid={pid}) INFO:     Application startup complete.\n"


def say(text: str, **values: object) -> None:
    print(text.format(pid=os.getpid(), **values), end="", flush=True)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        print(f'INFO:     127.0.0.1:1 - "{self.requestline}" {args[1]}', flush=True)

    def answer(self, status: int, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        known = {"/health": {}, "/v1/models": {"data": [{"id": "fake"}]}, "/metrics": {}}
        if self.path == "/generate" and MODE != "bad-endpoint":
            self.answer(405, {"detail": "Method Not Allowed"})
        else:
            self.answer(200 if self.path in known else 404, known.get(self.path, {}))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if MODE in ("no-completion", "hung-completion"):
            say(RANK)
            if MODE == "hung-completion":
                time.sleep(60)
            self.answer(500, {"error": {"message": "EngineCore encountered an issue", "code": 500}})
        elif self.path == "/v1/completions":
            self.answer(200, {"choices": [{"text": " world"}]})
        else:
            self.answer(404, {})


def proof(name: str, **content: object) -> None:
    folder = Path(os.environ["HYBRIDCTL_RUN_DIR"])
    (folder / name).write_text(json.dumps({"schema_version": 1, "process": "MainProcess", **content}))


def prove(worker: int) -> None:
    if "HYBRIDCTL_RUN_DIR" not in os.environ or MODE in ("no-proof", "bad-plugin"):
        return
    proof(f"registered-{os.getpid()}.json", pid=os.getpid(), vllm="0.32.0")
    layers = {
        f"model.layers.{i}.self_attn.attn": {"backend": "x.RoutedCPUBackend", "frees_from": 512} for i in range(4)
    }
    if named := os.environ.get("HYBRIDCTL_NAMES"):
        rules = json.loads((Path(named) / "hybridctl.json").read_text())["load"]["names"]
        done = 0 if MODE == "idle-names" else 2
        rows = [{**rule, "tensors": done, "example": [rule["old"], rule["new"]]} for rule in rules]
        proof(f"names-0-{worker}.json", pid=worker, rank=0, rules=rows, empty="")
    proof(f"layers-0-{worker}.json", pid=worker, rank=0, layers=layers, banner=["routing by position", "0–511 flash"])


def main() -> None:
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif MODE == "swallow":
        signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    elif MODE not in ("silent", "portless"):
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    worker = subprocess.Popen([sys.executable, "-c", WORKER, MODE, SHARED], start_new_session=True).pid
    say(START, worker=worker)
    if MODE in ("bad-plugin", "bad-endpoint"):
        say(BAD_PLUGIN)
    if MODE == "other-plugin":
        say(BAD_PLUGIN.replace("hybridctl", "special"))
    if MODE == "unknown-name":
        say(BAD_PLUGIN)
        say(UNKNOWN)
        sys.exit(1)
    if MODE == "crash":
        say(CRASH, worker=worker)
        sys.exit(1)
    while MODE in ("silent", "portless", "swallow"):
        time.sleep(1)
    prove(worker)
    say(DONE)
    if MODE == "late-crash":
        threading.Timer(3, lambda: (say(CRASH, worker=worker), os._exit(1))).start()
    server.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    if MODE != "portless":
        server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    main()
