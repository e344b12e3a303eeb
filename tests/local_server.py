"""A server of HTTP on this machine, in threads of the test's process."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LocalServer:
    """Serves from the moment that it is made, at ``address``. A subclass answers, GET and HEAD alike."""

    protocol = "HTTP/1.1"

    def __init__(self) -> None:
        place = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = self.protocol

            def do_GET(self) -> None:
                place.answer(self)

            do_HEAD = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
