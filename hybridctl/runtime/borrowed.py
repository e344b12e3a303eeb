"""A server for as long as it is needed: started on a free port, ended afterwards."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hybridctl.errors import HybridctlError
from hybridctl.runtime.checkpoint import DEMO_NAME, demo, find
from hybridctl.runtime.child import Child
from hybridctl.runtime.verify import Subject


@contextmanager
def borrowed(model: str, say: Callable[[str], None]) -> Iterator[Subject]:
    """Serve a model. Raises HybridctlError where it does not come up."""
    checkpoint = demo() if model == DEMO_NAME else find(model)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    what = "--demo" if checkpoint.demo else checkpoint.location
    line = [sys.executable, "-m", "hybridctl", "serve", what, "--port", str(port), "--host", "127.0.0.1", "--json"]
    child = Child(line, os.environ, grace=60.0)
    try:
        yield Subject(_wait(child, say), checkpoint)
    finally:
        child.stop()
        child.wait()


def _wait(child: Child, say: Callable[[str], None]) -> str:
    """Its address, once its document says that it is ready. What it prints besides is passed on."""
    document, last = "", ""
    for data in child.output:
        line = data.decode("utf-8", "replace").rstrip()
        if document or line == "{":
            document += line
            if line == "}":
                threading.Thread(target=lambda: list(child.output), daemon=True).start()  # a full pipe would stop it
                return str(json.loads(document)["url"])
            continue
        last = line or last
        say(line)
    raise HybridctlError(f"the server did not come up: {last}")
