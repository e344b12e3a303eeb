"""Why a server ended: the doctor on its log and launch line, in one finding."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import BinaryIO

from hybridctl.doctor.diagnose import Inputs, diagnose
from hybridctl.doctor.findings import Finding

# A process that was killed says nothing; another one tells of it.
_VANISHED = re.compile(r"Worker proc \S+ died unexpectedly|engine core exited unexpectedly|Engine core proc \S+ died")
WORKER_RAISED = "WorkerProc hit an exception"
"""What vLLM logs for an exception in a worker while it works (``multiproc_executor.py``). Where it is not the rank whose output is
awaited, nobody is told: the engine waits for minutes, and the other ranks for the one that is out of step."""
_FROM_OUTSIDE = "from outside, or by the kernel for want of memory (dmesg tells)"
_PLUGIN = re.compile(r"Failed to (?:load|instantiate endpoint) plugin (\S+)")
_UNKNOWN = re.compile(r"Model architectures \['(HybridCtl\w+)'\] are not supported")


@dataclass(frozen=True)
class Aftermath:
    """What the log says: the finding that comes first, the innermost error, the phase that was reached."""

    finding: Finding | None
    error: str
    reached: str | None


def read(transcript: BinaryIO, line: str) -> Aftermath:
    """Read the log of a server that has ended.

    Args:
        line: its launch line.
    """
    gone = _VANISHED.search(transcript.read().decode("utf-8", "replace"))
    transcript.seek(0)
    result = diagnose(Inputs(log=transcript, command=line))
    log = result.log
    error = ""
    if log is not None and log.innermost is not None:
        named = f"{log.innermost.type}: " if log.innermost.type else ""
        error = named + log.innermost.message
    if gone and (not error or "EngineDeadError" in error):
        error = f"{gone[0]}, without a word of its own: killed {_FROM_OUTSIDE}"
    # A warning on the way explains no end: only what stands in an error does.
    heavy = {hit.entry_id for hit in log.hits if hit.weight > 1} if log is not None else set()
    causes = (f for f in result.findings if f.id in heavy and f.severity == "error")
    return Aftermath(next(causes, None), " ".join(error.split())[:500], log.reached if log else None)


def of_signal(code: int) -> str:
    """What an exit code says of a process that a signal ended; empty for any other."""
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return ""
    return f"{name}, {_FROM_OUTSIDE}" if name in ("SIGKILL", "SIGTERM") else name


def lost_plugins(transcript: BinaryIO) -> dict[str, str]:
    """Plugins that vLLM could not load, which it only logs, each with the error."""
    text = transcript.read().decode("utf-8", "replace").splitlines()
    transcript.seek(0)
    lost: dict[str, str] = {}
    for i, line in enumerate(text):
        if found := _PLUGIN.search(line):
            following = (each for each in text[i + 1 : i + 200] if re.search(r"\b\w*(?:Error|Exception): ", each))
            lost.setdefault(found[1], next(following, line).rpartition("] ")[2].strip())
    return lost


def plugin_trouble(transcript: BinaryIO) -> str:
    """What vLLM logged about a plugin of ours that it could not load, or has not even tried to load; empty where nothing."""
    if why := lost_plugins(transcript).get("hybridctl"):
        return why
    if unknown := _UNKNOWN.search(transcript.read().decode("utf-8", "replace")):
        return (
            f"a process of it does not know {unknown[1]}, so it never tried; serve named the plugin in VLLM_PLUGINS: "
            "look for what changes that on the way (sitecustomize, a wrapper around Python)"
        )
    return ""
