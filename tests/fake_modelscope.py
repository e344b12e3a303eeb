"""A small ModelScope on this machine, for its real client: one repository, ``a/m``, in the branch ``master``."""

from __future__ import annotations

import hashlib
import json
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from local_server import LocalServer


class ModelScope(LocalServer):
    """Answers the two requests that a download needs: the list of files, and a file."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.asked = files, list[str]()
        super().__init__()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        self.asked.append(f"{request.command} {url.path}")
        name = (parse_qs(url.query).get("FilePath") or [""])[0]
        if url.path == "/api/v1/models/a/m/repo/files":
            rows = [
                {
                    "Path": path,
                    "Name": path,
                    "Type": "blob",
                    "Size": len(data),
                    "Sha256": hashlib.sha256(data).hexdigest(),
                }
                for path, data in self.files.items()
            ]
            self.send(request, 200, json.dumps({"Code": 200, "Success": True, "Data": {"Files": rows}}).encode())
        elif url.path == "/api/v1/models/a/m/repo" and name in self.files:
            self.send(request, 200, self.files[name])
        else:
            self.send(request, 404, b'{"Code": 404, "Success": false, "Message": "no such repository"}')

    @staticmethod
    def send(request: BaseHTTPRequestHandler, status: int, data: bytes) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data)
