"""An HTTP server in this process that answers as a routed vLLM does: tokens are bytes, counters follow a rule."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LAYERS, CUT, CONTEXT = 4, 512, 2048


def by_position(position: int) -> str:
    return "flash" if position < CUT else "linear"


@contextmanager
def routed_server(rule: Callable[[int], str] = by_position, counters: bool = True) -> Iterator[str]:
    """Its address. ``rule``: position → kernel."""
    seen = {"flash": 0, "linear": 0, "absorb": 0}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self.answer(200, json.dumps({"data": [{"id": "hybridctl-demo", "max_model_len": CONTEXT}]}))
            elif self.path == "/metrics":
                lines = [f'hybridctl_kernel_tokens_total{{kernel="{k}"}} {float(v)}' for k, v in seen.items()]
                self.answer(200, "# HELP x y\n" + "\n".join(lines if counters else []) + "\n")
            else:
                self.answer(404, "{}")

        def do_POST(self) -> None:
            body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/tokenize":
                self.answer(200, json.dumps({"tokens": [256, *body["prompt"].encode()]}))
                return
            prompt = body["prompt"]
            if len(prompt) >= CONTEXT:
                self.answer(400, json.dumps({"error": {"message": "too long"}}))
                return
            assert body["cache_salt"]
            for position in range(len(prompt)):
                seen[rule(position)] += LAYERS
            self.answer(200, json.dumps({"choices": [{"text": "x"}]}))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
