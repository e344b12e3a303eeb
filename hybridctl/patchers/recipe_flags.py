"""The flags that a recipe names: which of them are set in an overlay, and which only written down, each with its reason."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from hybridctl.flags import flag_window
from hybridctl.model.config import ModelConfig
from hybridctl.model.families import Family, ServeFlag, family_of_architecture, family_of_type
from hybridctl.overlays import StoredFlag
from hybridctl.versions import parse_version

_LEFT = {
    "--trust-remote-code": "hybridctl never sets it: read the checkpoint's code first",
    "--speculative-config": "hybridctl fit MODEL --speculative mtp:N counts what it costs",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a recipe adds to a launch.

    Attributes:
        flags: set.
        variables: ``NAME=value`` of the environment, set, each with its reason.
        others: not set: what would be typed, and when or why not.
    """

    flags: tuple[StoredFlag, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    others: tuple[tuple[str, str], ...] = ()


def family_of(config: ModelConfig, architecture: str) -> Family | None:
    """The family of a checkpoint, by its class, else by its type."""
    types = (family_of_type(each) for each in config.model_types)
    return family_of_architecture(architecture) or next((f for f in types if f is not None), None)


def recipe(family: Family | None, given: Sequence[StoredFlag], vllm: str) -> Recipe:
    """The recipe's flags that hold without a condition are set, but for those that ask a decision of the user.

    Args:
        given: flags that are set already, which win.
        vllm: the release that is prepared for.
    """
    flags: list[StoredFlag] = []
    variables: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for each in family.flags if family is not None else ():
        told = f"{each.reason} ({each.source})" if each.source else each.reason
        if why := _left(each, given, vllm):
            others.append((each.flag, f"{why}: {told}"))
        elif each.flag.startswith("-"):
            name, *values = shlex.split(each.flag)
            flags.append(StoredFlag(name=name, values=values, reason=told))
        else:
            variables.append((each.flag, told))
    return Recipe(tuple(flags), tuple(variables), tuple(others))


def _left(flag: ServeFlag, given: Sequence[StoredFlag], vllm: str) -> str:
    """Why a flag is not set; empty where it is."""
    name = flag.flag.partition(" ")[0]
    if flag.when:
        return f"for {flag.when}"
    if name in _LEFT:
        return _LEFT[name]
    if any(other.name == name for other in given):
        return "set above to another value"
    version = parse_version(vllm)
    window = flag_window(name.removeprefix("--").removeprefix("no-")) if name.startswith("--") else None
    if window is not None and version is not None and window.holds(version) is False:
        return f"vLLM {vllm} has no such flag"
    return ""
