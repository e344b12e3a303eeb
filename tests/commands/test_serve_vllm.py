"""One real start: the demo model in the installed vLLM, asked, checked from outside, and ended."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from fake_vllm import serving

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def post(url: str, document: dict[str, object], kind: str) -> dict[str, object]:
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=120) as answer:
        lines = answer.read().decode().splitlines()
        reply: dict[str, object] = json.loads(lines[-1])
        return reply


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM")
def test_the_demo_is_served_as_configured_and_leaves_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo", "--json", python=Path(sys.executable)) as server:
        server.when(lambda: server.out.endswith("\n}\n"), 500)
        ready = json.loads(server.out)
        assert (ready["injected"], ready["layers"], ready["generate"]) == (True, 4, True)
        url = ready["url"]
        # As curl -d sends it, and as a client would.
        asked: dict[str, object] = {"prompt": "def fibonacci(n):", "max_tokens": 20, "temperature": 0}
        whole = post(f"{url}/generate", asked, "application/x-www-form-urlencoded")["text"]
        assert whole[0].startswith("def fibonacci(n):")  # type: ignore[index]
        assert post(f"{url}/generate", {**asked, "stream": True}, "application/json")["text"] == whole
        done = subprocess.run(
            [sys.executable, "-m", "hybridctl", "verify", "--json", "--windows", "2"],
            capture_output=True,
            text=True,
            env={**os.environ, "HYBRIDCTL_HOME": str(server.home)},
            check=False,
        )
        report = json.loads(done.stdout)
        assert (done.returncode, report["passed"]) == (0, True), report["verdict"]
        assert {row["last"] for row in report["routing"]} == {"flash", "linear"}
        assert report["reference"]["worst"] < 1e-4
        server.look()
        assert {"VLLM::EngineCore", "VLLM::Worker"} <= set(server.seen.values())
        assert server.end(signal.SIGTERM, 60) == 0
        assert (server.left, server.runs) == ([], [])
