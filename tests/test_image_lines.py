"""hybridctl inside the official vLLM image: the lines of README.md, as far as they can be tried without Docker.

Docker's part is held to the words that it knows; what the shell in the container runs is parsed by hybridctl itself, and the
installation is tried beside a vLLM.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import typer

from hybridctl.app import app

ROOT = Path(__file__).parents[1]
LINES = re.findall(
    r"^\$ ((?:git archive .*)?docker .*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
)
INSTALL = ["uv", "pip", "install", "--system", "-q", "/src"]
# docker run and docker exec, as far as the lines use them: options that take a value, and those that take none.
VALUES, SWITCHES = {"--gpus", "-v", "--entrypoint"}, {"--rm"}


def container_part(line: str) -> tuple[list[str], str]:
    """The words of the last docker command, and the script that a shell in the container gets."""
    words = shlex.split(line)
    last = len(words) - words[::-1].index("docker") - 1
    assert words[-2] == "-c"
    return words[last:-2], words[-1]


def test_there_is_a_line_for_a_new_container_and_one_for_a_running_one() -> None:
    assert [container_part(line)[0][1] for line in LINES] == ["run", "exec"]


@pytest.mark.parametrize("line", LINES)
def test_the_lines_are_whole(line: str) -> None:
    words, script = container_part(line)
    if words[1] == "run":
        image = next(i for i, w in enumerate(words) if w.startswith("vllm/vllm-openai:v"))
        options = words[2:image]
        while options:
            option = options.pop(0)
            assert option in VALUES | SWITCHES
            if option in VALUES:
                options.pop(0)
        assert "$PWD:/src:ro" in words
        assert words[words.index("--entrypoint") + 1] == "bash"
        assert words[image + 1 :] == []
    else:
        assert words == ["docker", "exec", "vllm", "bash"]
        before = shlex.split(line)[: -len(words) - 3]
        assert before == ["git", "archive", "--prefix=src/", "HEAD", "|", "docker", "cp", "-", "vllm:/"]
    first, _, second = script.partition(" && ")
    assert shlex.split(first) == INSTALL
    program, command, *arguments = shlex.split(second)
    assert program == "hybridctl"
    group = typer.main.get_command(app)
    made = group.commands[command].make_context(command, list(arguments))  # type: ignore[attr-defined]
    assert made.info_name == "doctor"
    assert made.params["pid"] == (1 if "--pid" in arguments else None)


def test_an_unknown_option_would_be_seen() -> None:
    group = typer.main.get_command(app)
    with pytest.raises(Exception, match="No such option"):
        group.commands["doctor"].make_context("doctor", ["--nothing-like-it"])  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that can't be written, as it is mounted."""
    folder = tmp_path_factory.mktemp("mounted") / "src"
    skip = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "dist", "build")
    shutil.copytree(ROOT, folder, ignore=skip)
    for path in [*folder.rglob("*"), folder]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    return folder


@pytest.fixture
def beside_vllm(tmp_path: Path) -> Path:
    """The Python of an environment that sees every package of this one, hybridctl too, and into which anything may be installed."""
    if not any(Path(sysconfig.get_paths()["purelib"]).glob("vllm*.dist-info")):
        pytest.skip("no vLLM in this environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True, timeout=120)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "here.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return tmp_path / "env" / "bin" / "python"


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.network
def test_pip_adds_hybridctl_and_moves_nothing(source: Path, beside_vllm: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [beside_vllm, "-m", "pip", "install", "--quiet", "--report", report, source]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert [item["metadata"]["name"] for item in json.loads(report.read_text())["install"]] == ["hybridctl"]
    script = beside_vllm.with_name("hybridctl")
    run = subprocess.run([script, "doctor", "--json"], capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert run.returncode in (0, 1), run.stderr
    document = json.loads(run.stdout)
    checks = {row["check"]: row["state"] for row in document["checks"]}
    assert checks["vllm-files"] == "ok"
    assert document["subject"]["engine"] == "vllm"


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.network
def test_uv_would_do_the_same(source: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("no uv here")
    command = [uv, "pip", "install", "--dry-run", "--no-config", "--python", sys.executable, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    changes = [
        line.split()[1].partition("==")[0]
        for line in done.stderr.splitlines()
        if line.startswith((" + ", " - ", " ~ "))
    ]
    assert set(changes) == {"hybridctl"}
