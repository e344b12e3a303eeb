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
    "below both thresholds (256 and 512)": "def fibonacci(n):\n",
    "between them": LISTING[:380],
    "above both": LISTING[:900],
}
ABOUT = """\
Serves the small model that comes with hybridctl (1.4 million parameters, a token is a byte) with routed attention: softmax up
to position 511, linear attention from 512 on. It was trained for that on Python source, and what it writes only looks like
Python: this shows the server, not a good model. Takes a few minutes, most of them while vLLM starts."""


def say(text: str) -> None:
    print(text, flush=True)  # what is started here writes to the same place


def title(text: str) -> None:
    say(f"\n--- {text}")


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
    os.environ.setdefault("VLLM_LOG_STATS_INTERVAL", "3600")  # no line on throughput every ten seconds
    say(ABOUT)
    title("hybridctl doctor: what is on this machine")
    subprocess.run([*HYBRIDCTL, "doctor"], check=False)

    title("hybridctl serve --demo: vLLM starts")
    line = [*HYBRIDCTL, "serve", "--demo", "--port", str(free_port()), "--json", "--", "--disable-uvicorn-access-log"]
    server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        ready = wait_ready(server)
        if ready is None:
            say("the demo server did not start: the lines above say why")
            return server.wait() or 1
        url = str(ready["url"])
        processes = ready["processes"]
        assert isinstance(processes, list)
        say(
            f"ready after {ready['seconds']} s at {url}: the dispatcher is in {ready['layers']} layers, "
            f"as {len(processes)} processes of vLLM have proved"
        )

        title("three prompts through the OpenAI API (/v1/completions)")
        for where, prompt in PROMPTS.items():
            asked = {"model": ready["model"], "prompt": prompt, "max_tokens": 48, "temperature": 0}
            reply = post(f"{url}/v1/completions", asked)
            tokens = reply["usage"]["prompt_tokens"]  # type: ignore[index]
            say(f"{tokens:3} tokens, {where}: it goes on with")  # type: ignore[index]
            say(f"    {reply['choices'][0]['text']!r}")  # type: ignore[index]

        title("one prompt through /generate")
        body = {"prompt": "def fibonacci(n):", "max_tokens": 60, "temperature": 0}
        say(f"$ curl {url}/generate -d '{json.dumps(body)}'")
        say(json.dumps(post(f"{url}/generate", body)))

        title("hybridctl verify: counted from outside, held against the reference, and routed otherwise")
        checked = subprocess.run([*HYBRIDCTL, "verify", url], check=False).returncode
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        code = server.wait()

    title("summary")
    say("served, and stopped in order" if code == 0 else f"the server ended with exit code {code}")
    say("verify: all holds" if checked == 0 else f"verify: exit code {checked}, see its verdict")
    say(f"{time.monotonic() - begun:.0f} s, set-up not counted")
    here = os.path.relpath(sys.prefix)
    say(
        f"next: {sys.prefix if here.startswith('..') else here}/bin/hybridctl serve --demo, and the curl line that it prints"
    )
    return checked or code


if __name__ == "__main__":
    sys.exit(main())
