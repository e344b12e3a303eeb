"""Who listens on a port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from hybridctl.runtime import listening

pytestmark = [
    pytest.mark.lifecycle,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, as vLLM's machines have it"),
]


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_listener_is_found_and_whose_it_is(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as server:
        try:
            server.bind((host, 0))
        except OSError:
            pytest.skip(f"no {host} here")
        port = server.getsockname()[1]
        assert listening.listeners(port) == set()  # bound, but does not listen
        server.listen()
        (inode,) = listening.listeners(port)
        assert listening.holds([os.getpid()], {inode})
        other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        assert not listening.holds([other.pid], {inode})
        other.communicate(b"\n")
        assert not listening.holds([other.pid], {inode})  # gone
        assert listening.holds([other.pid, os.getpid()], {"1", inode})
    assert listening.listeners(port) == set()
