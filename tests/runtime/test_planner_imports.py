"""Planning needs lengths only."""

from __future__ import annotations

import subprocess
import sys


def test_the_dispatcher_loads_nothing_heavy() -> None:
    code = "import sys, hybridctl.runtime.dispatcher, hybridctl.runtime.selection_log; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert not {"torch", "vllm", "numpy", "pydantic", "rich"} & {name.partition(".")[0] for name in loaded.split()}
