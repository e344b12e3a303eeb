"""Headers by range requests, with the real huggingface_hub client against a small hub on this machine."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from local_server import LocalServer

from hybridctl.errors import HybridctlError
from hybridctl.model.hub_headers import read_hub

SHA = "0" * 40
Ask = Callable[["Hub"], dict[str, Any]]


def weights(tensors: dict[str, tuple[str, list[int], int]], data: int | None = None) -> bytes:
    """A weight file; tensors: dtype, shape, bytes."""
    table, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(table).encode()
    return struct.pack("<Q", len(header)) + header + bytes(at if data is None else data)


class Hub(LocalServer):
    """One repository, ``a/m``. ``fault``: what goes wrong with weight files."""

    protocol = "HTTP/1.0"

    def __init__(self, files: dict[str, bytes], fault: str = "") -> None:
        self.files, self.fault, self.sent = files, fault, 0
        super().__init__()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        if path.startswith("/api/models/"):
            if self.fault in ("401", "404"):
                return self.plain(
                    request, int(self.fault), {"X-Error-Code": "GatedRepo" if self.fault == "401" else "RepoNotFound"}
                )
            siblings = [{"rfilename": n, "size": len(b)} for n, b in self.files.items()]
            body = {
                "id": "a/m",
                "sha": SHA,
                "siblings": siblings,
                "private": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
            }
            return self.plain(request, 200, {"Content-Type": "application/json"}, json.dumps(body).encode())
        name = path.rpartition("/")[2]
        if self.fault == "redirect" and path.startswith("/a/m/"):
            return self.plain(request, 302, {"Location": f"{self.address}/cdn/{name}"})
        if self.fault == "drop" and name.endswith(".safetensors"):
            request.connection.close()
            return None
        return self.ranged(request, self.files[name])

    def ranged(self, request: BaseHTTPRequestHandler, data: bytes) -> None:
        begin, end = 0, len(data) - 1
        asked = request.headers.get("Range", "")
        if asked.startswith("bytes=") and self.fault != "no-range":
            low, _, high = asked[6:].partition("-")
            begin, end = int(low), min(int(high), end)
            status = 206
        else:
            status = 200
        part = data[begin : end + 1]
        self.sent += len(part)
        self.plain(request, status, {"Content-Range": f"bytes {begin}-{end}/{len(data)}"}, part)

    @staticmethod
    def plain(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        try:
            request.wfile.write(body)
        except OSError:
            return


SMALL = {
    "model.embed_tokens.weight": ("BF16", [8, 4], 64),
    "model.layers.0.mlp.experts.0.up_proj.weight": ("F8_E4M3", [4], 4),
}
OTHER = {"lm_head.weight": ("BF16", [8, 4], 64)}


@pytest.fixture
def hubs() -> Iterator[list[Hub]]:
    started: list[Hub] = []
    yield started
    for hub in started:
        hub.close()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[[Hub], dict[str, Any]]:
    """Read the headers of that hub, with the real client; what it refuses becomes a table of its words."""

    def asking(hub: Hub) -> dict[str, Any]:
        from huggingface_hub import constants, file_download

        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        if hasattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE"):  # older clients have a copy of their own
            monkeypatch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        try:
            found = read_hub("a/m", seconds=5)
        except HybridctlError as error:
            return {"error": str(error), "hint": error.hint}
        return {} if found is None else {"bytes": found.bytes, "part": found.by_part, "files": found.files}

    return asking


def test_an_index_and_two_files(hubs: list[Hub], ask: Ask) -> None:
    index = {"weight_map": {"model.embed_tokens.weight": "1.safetensors", "lm_head.weight": "2.safetensors"}}
    hubs.append(
        Hub(
            {
                "model.safetensors.index.json": json.dumps(index).encode(),
                "1.safetensors": weights(SMALL),
                "2.safetensors": weights(OTHER),
            }
        )
    )
    assert ask(hubs[0]) == {"bytes": 132, "part": {"embedding": 128, "experts": 4}, "files": 2}


def test_a_header_longer_than_the_first_request_and_data_that_is_never_read(hubs: list[Hub], ask: Ask) -> None:
    many = {f"model.layers.{i}.mlp.experts.{j}.up_proj.weight": ("I8", [1], 1) for i in range(80) for j in range(80)}
    file = weights(many) + b""
    length = int.from_bytes(file[:8], "little")
    assert length > 512 * 1024
    big = weights({**many, "model.embed_tokens.weight": ("I8", [4_000_000], 4_000_000)})
    hubs.append(Hub({"model.safetensors": big}))
    found = ask(hubs[0])
    assert found["bytes"] == 4_000_000 + 6400
    assert hubs[0].sent < length + 20_000  # the header, and nothing of the data


def test_redirects_keep_the_range(hubs: list[Hub], ask: Ask) -> None:
    hubs.append(Hub({"model.safetensors": weights(SMALL)}, "redirect"))
    assert ask(hubs[0])["bytes"] == 68


def test_a_server_without_ranges_is_read_no_further_than_needed(hubs: list[Hub], ask: Ask) -> None:
    hubs.append(Hub({"model.safetensors": weights(SMALL)}, "no-range"))
    assert ask(hubs[0])["bytes"] == 68


def test_no_weights(hubs: list[Hub], ask: Ask) -> None:
    hubs.append(Hub({"README.md": b"x"}))
    assert ask(hubs[0]) == {}


@pytest.mark.parametrize(
    ("fault", "words"), [("401", "gated"), ("404", "no such repository"), ("drop", "could not be read")]
)
def test_refusals(hubs: list[Hub], ask: Ask, fault: str, words: str) -> None:
    hubs.append(Hub({"model.safetensors": weights(SMALL)}, fault))
    found = ask(hubs[0])
    assert words in found["error"] and found["hint"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"model.safetensors": struct.pack("<Q", 2**60) + b"{}"}, "is not possible"),
        ({"model.safetensors": struct.pack("<Q", 200_000) + b"[" * 200_000}, "nested"),
        ({"model.safetensors": weights(SMALL, data=10)}, "cut off"),
        (
            {"model.safetensors.index.json": b'{"weight_map": {"a": "../../x.safetensors"}}'},
            "no weight file of this folder",
        ),
        ({"model.safetensors.index.json": b"[" * 100_000}, "no index"),
    ],
)
def test_hostile_files(hubs: list[Hub], ask: Ask, files: dict[str, bytes], words: str) -> None:
    hubs.append(Hub(files))
    assert words in ask(hubs[0])["error"]
