"""The stages of a vLLM start, in order. A fault that belongs to one stage is ruled out by a log that got past it."""

from __future__ import annotations

PHASES = ("install", "import", "config", "load", "profile", "kv-cache", "capture", "ready", "serving")


def is_past(reached: str, phase: str) -> bool:
    """Whether a start that reached ``reached`` has ``phase`` behind it."""
    return PHASES.index(reached) > PHASES.index(phase) if reached in PHASES and phase in PHASES else False
