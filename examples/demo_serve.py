"""The whole way in a few minutes: doctor, serve the demo model, ask it, check it, stop it. Run by ``make demo-serve``.

Uses the hybridctl of the interpreter that runs it; standard library only.
"""

# ruff: noqa: T201
from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HYBRIDCTL = [sys.executable, "-m", "hybridctl"]
LISTING = "".join(f"def step_{i}(value):\n    return value + {i}\n\n\n" for i in range(40))
PROMPTS = {
    "below the thresholds": "def fibonacci(n):\n",
    "between them": LISTING[:380],
    "above them": LISTING[:900],
}


def title(text: str) -> None:
    print(f"\n--- {text}", flush=True)


def post(url: str, document: dict[str, object]) -> dict[str, object]:
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        reply: dict[str, object] = json.load(answer)
        return reply


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_ready(server: subprocess.Popen[str]) -> dict[str, object] | None:
    """Its document, once it is ready; None where it ends before."""
    assert server.stdout is not None
    text = ""
    for line in server.stdout:
        text += line
        if line == "}\n":
            document: dict[str, object] = json.loads(text)
            return document
    return None


def main() -> int:
    begun = time.monotonic()
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    title("hybridctl doctor")
    subprocess.run([*HYBRIDCTL, "doctor"], check=False)

    title("hybridctl serve --demo")
    line = [*HYBRIDCTL, "serve", "--demo", "--port", str(free_port()), "--json", "--", "--disable-uvicorn-access-log"]
    server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        ready = wait_ready(server)
        if ready is None:
            return server.wait() or 1
        url = str(ready["url"])
        print(
            f"ready after {ready['seconds']} s: dispatcher in {ready['layers']} layers, {len(ready['processes'])} processes"
        )  # type: ignore[arg-type]

        title("three prompts through /v1/completions")
        for where, prompt in PROMPTS.items():
            asked = {"model": ready["model"], "prompt": prompt, "max_tokens": 48, "temperature": 0}
            reply = post(f"{url}/v1/completions", asked)
            tokens = reply["usage"]["prompt_tokens"]  # type: ignore[index]
            print(f"{tokens} tokens, {where}: {reply['choices'][0]['text']!r}")  # type: ignore[index]

        title("one prompt through /generate")
        command = ["curl", "-s", f"{url}/generate", "-d", json.dumps({"prompt": "def fibonacci(n):", "max_tokens": 60})]
        print(" ".join(command[:1] + command[2:4]) + f" '{command[4]}'")
        print(json.dumps(post(f"{url}/generate", json.loads(command[4]))))

        title("hybridctl verify")
        checked = subprocess.run([*HYBRIDCTL, "verify", url], check=False).returncode
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        code = server.wait()

    title("summary")
    print(
        f"served and stopped with exit code {code}; verify: {'all holds' if checked == 0 else f'exit code {checked}'}"
    )
    print(f"{time.monotonic() - begun:.0f} s, set-up not counted")
    return checked or code


if __name__ == "__main__":
    sys.exit(main())
