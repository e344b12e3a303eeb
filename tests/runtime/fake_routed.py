"""An HTTP server in this process that answers as a routed vLLM does: tokens are bytes, counters follow a rule, and so does what it
says of the next token."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LAYERS, CUT, CONTEXT = 4, 512, 2048
SURE = -0.1
"""Log-probability of the token that the model expects."""


def by_position(position: int) -> str:
    return "flash" if position < CUT else "linear"


def expected(token: int, position: int, odd: Callable[[int], bool]) -> int:
    """What follows a token: the next byte, or where a position is odd the one after that."""
    return (token + (2 if odd(position) else 1)) % 256


@contextmanager
def routed_server(
    rule: Callable[[int], str] = by_position,
    counters: bool = True,
    nats: Callable[[int], float] = lambda position: 1.0,
    odd: Callable[[int], bool] = lambda position: False,
    begin: int = 256,
) -> Iterator[str]:
    """Its address.

    Args:
        rule: position → kernel, as counted.
        nats: position → what each token of a text costs that the model does not expect.
        odd: position → whether another token is expected there.
        begin: the token that stands before each text.
    """
    seen = {"flash": 0, "linear": 0, "absorb": 0}

    def logprob(tokens: list[int], position: int) -> float:
        wanted = expected(tokens[position], position, odd)
        return SURE if tokens[position + 1] == wanted else -nats(position)

    def completion(body: dict[str, Any]) -> dict[str, Any]:
        prompt = list(body["prompt"])
        for position in range(len(prompt)):
            seen[rule(position)] += LAYERS
        if body.get("echo"):
            told = [logprob(prompt, p) for p in range(len(prompt) - 1)]
            best = []
            for p, own in enumerate(told):
                names = {f"token_id:{prompt[p + 1]}": own, f"token_id:{expected(prompt[p], p, odd)}": SURE}
                best.append(names)
            return {"text": "", "logprobs": {"token_logprobs": [None, *told], "top_logprobs": [None, *best]}}
        assert body["cache_salt"]
        whole = list(prompt)
        for _ in range(body["max_tokens"]):
            whole.append(expected(whole[-1], len(whole) - 1, odd))
        ids = whole[len(prompt) :]
        text = bytes(ids).decode("latin-1")
        return {"text": text, "token_ids": ids, "logprobs": {"token_logprobs": [SURE] * len(ids)}}

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
                self.answer(200, json.dumps({"tokens": [begin, *body["prompt"].encode()]}))
            elif len(body["prompt"]) >= CONTEXT:
                self.answer(400, json.dumps({"error": {"message": "too long"}}))
            else:
                self.answer(200, json.dumps({"choices": [completion(body)]}))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
