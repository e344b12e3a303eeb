"""A small hub on this machine, for the real huggingface_hub client: one repository, ``a/m``, and what can go wrong with it."""

from __future__ import annotations

import hashlib
import json
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from local_server import LocalServer

COMMIT = "0" * 40


class Hub(LocalServer):
    """Serves files with redirects and ranges, as the hub does.

    ``fault``: gated (403), unauthorised (401), busy (429 for ever), busy-once, drop (the connection ends after half a file, each
    time), drop-once (only the first time), etag (a wrong one), slow (a few kilobytes at a time).
    """

    def __init__(self, files: dict[str, bytes], fault: str = "") -> None:
        self.files, self.fault, self.commit = files, fault, COMMIT
        self.asked: list[tuple[str, str, str]] = []
        """Method, path and range of each request."""
        self.sent = 0
        self.faulty: set[str] = set()
        super().__init__()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        self.asked.append((request.command, path, request.headers.get("Range", "")))
        if self.fault in ("gated", "unauthorised"):
            code = "GatedRepo" if self.fault == "gated" else "RepoNotFound"
            return self.plain(request, 403 if self.fault == "gated" else 401, {"X-Error-Code": code}, b"")
        if self.fault == "busy" or (self.fault == "busy-once" and path not in self.faulty):
            self.faulty.add(path)
            return self.plain(request, 429, {"Retry-After": "1"}, b"")
        if path.startswith("/api/models/"):
            return self.listing(request)
        name = path.partition("/resolve/")[2].partition("/")[2] or path.removeprefix("/cdn/")
        if name not in self.files:
            return self.plain(request, 404, {"X-Error-Code": "EntryNotFound"}, b"")
        headers = {"X-Repo-Commit": self.commit, "ETag": f'"{self.etag(name)}"', "Accept-Ranges": "bytes"}
        if name.endswith(".safetensors") and path.startswith("/a/m/"):
            linked = {"X-Linked-ETag": f'"{self.etag(name)}"', "X-Linked-Size": str(len(self.files[name]))}
            return self.plain(request, 302, {**headers, **linked, "Location": f"{self.address}/cdn/{name}"}, b"")
        return self.ranged(request, name, headers)

    def etag(self, name: str) -> str:
        data = self.files[name] + (b"other" if self.fault == "etag" else b"")
        return (hashlib.sha256 if name.endswith(".safetensors") else hashlib.sha1)(data).hexdigest()

    def listing(self, request: BaseHTTPRequestHandler) -> None:
        siblings = []
        for name, data in self.files.items():
            row: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}
            if name.endswith(".safetensors"):
                row["lfs"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 134}
            siblings.append(row)
        document = {"id": "a/m", "sha": self.commit, "siblings": siblings, "private": False, "tags": []}
        self.plain(request, 200, {"Content-Type": "application/json"}, json.dumps(document).encode())

    def ranged(self, request: BaseHTTPRequestHandler, name: str, headers: dict[str, str]) -> None:
        data, status = self.files[name], 200
        begin, end = 0, len(data) - 1
        if (asked := request.headers.get("Range", "")).startswith("bytes="):
            low, _, high = asked[6:].partition("-")
            begin, end, status = int(low), min(int(high or end), end), 206
            headers["Content-Range"] = f"bytes {begin}-{end}/{len(data)}"
        part = data[begin : end + 1]
        request.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(part))}.items():
            request.send_header(key, value)
        request.end_headers()
        if request.command != "HEAD":
            self.send(request, name, part, whole=not asked)

    def send(self, request: BaseHTTPRequestHandler, name: str, part: bytes, whole: bool) -> None:
        drops = self.fault == "drop" or (self.fault == "drop-once" and name not in self.faulty)
        step = 8192 if self.fault == "slow" else 1 << 20
        # Only downloads are harmed: they ask for the whole file, the reader of headers for its first part.
        if drops and whole and name.endswith(".safetensors"):
            self.faulty.add(name)
            part, request.close_connection = part[: len(part) // 2], True
        try:
            for at in range(0, len(part), step):
                request.wfile.write(part[at : at + step])
                self.sent += len(part[at : at + step])
                if self.fault == "slow" and whole:
                    time.sleep(0.02)
        except OSError:
            request.close_connection = True

    @staticmethod
    def plain(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
