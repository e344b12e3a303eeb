"""Facts about machines, environments, models and launch lines. Collectors gather; none of them judges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybridctl.doctor.facts.local import collect_local
    from hybridctl.doctor.facts.text import parse_env_text

__all__ = ["collect_local", "parse_env_text"]

_HOMES = {"collect_local": "hybridctl.doctor.facts.local", "parse_env_text": "hybridctl.doctor.facts.text"}


def __getattr__(name: str) -> Any:
    """Load on use: the child process that asks the driver imports this package and needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
