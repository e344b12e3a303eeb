"""A server for as long as it is needed: started on a free port, ended afterwards."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hybridctl.errors import HybridctlError
from hybridctl.runtime.checkpoint import Checkpoint
from hybridctl.runtime.child import Child


@contextmanager
def borrowed(
    checkpoint: Checkpoint,
    say: Callable[[str], None],
    python: str | None = None,
    no_hybrid: bool = False,
    extra: Sequence[str] = (),
) -> Iterator[str]:
    """Serve a model; gives its address.

    Args:
        say: takes what it prints meanwhile.
        python: the interpreter that has vLLM; None: this one.
        extra: flags for vLLM.

    Raises:
        HybridctlError: it does not come up.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line = [sys.executable, "-m", "hybridctl", "serve", "--demo" if checkpoint.demo else checkpoint.location]
    line += ["--port", str(port), "--host", "127.0.0.1", "--json"]
    line += ["--no-hybrid"] if no_hybrid else []
    line += ["--python", python] if python else []
    line += ["--", *extra] if extra else []
    child = Child(line, os.environ, grace=60.0)
    try:
        yield _wait(child, say)
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
