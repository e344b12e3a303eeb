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
from fake_vllm import free_port, marked

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def post(url: str, document: dict[str, object], kind: str) -> dict[str, object]:
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=120) as answer:
        lines = answer.read().decode().splitlines()
        reply: dict[str, object] = json.loads(lines[-1])
        return reply


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM")
def test_the_demo_is_served_as_configured_and_leaves_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "HYBRIDCTL_HOME": str(tmp_path), "MARK": tmp_path.name + "-real", "VLLM_NO_USAGE_STATS": "1"}
    env.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    hybridctl = [sys.executable, "-m", "hybridctl"]
    line = [*hybridctl, "serve", "--demo", "--port", str(free_port()), "--json"]
    with (tmp_path / "err").open("wb") as err:
        server = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=err, text=True, env=env)
    assert server.stdout is not None
    try:
        text = ""
        for part in server.stdout:
            text += part
            if part == "}\n":
                break
        assert text, (tmp_path / "err").read_text()
        ready = json.loads(text)
        assert (ready["injected"], ready["layers"], ready["generate"]) == (True, 4, True)
        url = ready["url"]
        # As curl -d sends it, and as a client would.
        asked: dict[str, object] = {"prompt": "def fibonacci(n):", "max_tokens": 20, "temperature": 0}
        whole = post(f"{url}/generate", asked, "application/x-www-form-urlencoded")["text"]
        assert whole[0].startswith("def fibonacci(n):")  # type: ignore[index]
        assert post(f"{url}/generate", {**asked, "stream": True}, "application/json")["text"] == whole
        done = subprocess.run(
            [*hybridctl, "verify", "--json", "--windows", "2"], capture_output=True, text=True, env=env, check=False
        )
        report = json.loads(done.stdout)
        assert (done.returncode, report["passed"]) == (0, True), report["verdict"]
        assert {row["last"] for row in report["routing"]} == {"flash", "linear"}
        assert report["reference"]["worst"] < 1e-4
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    assert code == 0
    assert marked(env["MARK"]) == []
    assert list((tmp_path / "state" / "runs").iterdir()) == []
