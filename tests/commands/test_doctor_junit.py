"""``doctor --format junit > report.xml`` in a CI job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.commands.test_doctor import MAMBA_LOG
from tests.doctor.test_junit import parsed


@pytest.mark.parametrize(
    ("encoding", "fail_on", "failures", "code"), [("latin-1", "warning", 1, 1), ("utf-8", "never", 0, 0)]
)
def test_what_a_shell_redirects_is_a_report(
    tmp_path: Path, encoding: str, fail_on: str, failures: int, code: int
) -> None:
    log, target = tmp_path / "log", tmp_path / "report.xml"
    log.write_text(
        f"été 中文 ]]> \x1b[31m\x00\n{MAMBA_LOG.replace('Each', 'été 中文 ]]> </failure> Each')}", encoding="utf-8"
    )
    with target.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "hybridctl", "doctor", "--log", str(log), "--format", "junit", "--fail-on", fail_on],
            stdout=file, stderr=subprocess.PIPE, timeout=60, check=False,
            env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, b"")
    assert ElementTree.parse(target).getroot().tag == "testsuite"
    suite = parsed(target.read_text(encoding="ascii"))
    assert int(str(suite.get("failures"))) == failures
    told = "".join(suite.itertext())
    assert "max_num_seqs" in told
    assert "été 中文 ]]> </failure> Each" in told
