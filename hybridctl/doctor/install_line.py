"""The line that installs a stack into an empty environment, and the pins that keep it in place."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hybridctl import tables
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Facts, shown
from hybridctl.doctor.findings import Fix
from hybridctl.doctor.stacks import Stack


@dataclass(frozen=True, slots=True)
class Install:
    """One stack to install."""

    stack: str
    title: str
    command: str
    constraints: list[str]
    after: list[Fix]
    because: list[str]
    """What the choice rests on, one line each."""
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "stack": self.stack,
            "title": self.title,
            "command": self.command,
            "constraints": self.constraints,
            "after": [{"text": f.text, "command": f.command} for f in self.after],
            "because": self.because,
            "notes": self.notes,
        }

    def markdown(self) -> list[str]:
        """For a ticket, as lines."""
        blocks = [("", self.command), *((f.text, f.command or "") for f in self.after)]
        lines = [
            "## To install",
            "",
            f"{self.title} (`{self.stack}`)",
            "",
            *(f"- {t}" for t in self.because + self.notes),
        ]
        for text, command in blocks:
            lines += [text, "", "```sh", command, "```", ""] if text else ["", "```sh", command, "```", ""]
        return [*lines, "Pins for `pip install -c`:", "", "```text", *self.constraints, "```", ""]


def install_of(stack: Stack, facts: Facts, because: Sequence[str] = ()) -> Install:
    """The line that installs a stack into an empty environment.

    Args:
        facts: what is known of the machine, for the processor and for where torch's CPU build is to be had.

    Raises:
        ValueError: the stack is no current one.
    """
    if stack.install is None:
        raise ValueError(f"{stack.id} is not to be installed")
    arch = str(facts.value("platform.arch") or "x86_64")
    words = ["python", "-m", "pip", "install"]
    if wheels := stack.install["wheels"]:
        words.append(wheels.get(arch, wheels["x86_64"]))
    words += stack.install["requirements"]
    words += _sources(stack, facts)
    return Install(
        stack.id,
        stack.title,
        " ".join(word if word.startswith('"$') else shlex.quote(word) for word in words),
        stack.constraints(),
        [Fix(step["text"], step["command"]) for step in stack.install["after"]],
        list(because),
        _notes(stack, facts),
    )


def _sources(stack: Stack, facts: Facts) -> list[str]:
    indexes: list[str] = list(stack.install["indexes"]) if stack.install else []
    if stack.build != "cpu":
        return [word for index in indexes for word in ("--extra-index-url", index)]
    if (own := facts.value("wheels.torch_index")) is not None:
        index = str(own)
        if index.startswith("$"):
            return ["--extra-index-url", f'"{index}"']
        return ["--extra-index-url" if "://" in index else "--find-links", index]
    begin = f"torch-{stack.packages['torch']}-"
    here = facts.value("wheels.torch")
    if isinstance(here, list) and any(_fits(name, begin, facts) for name in here):
        return []  # pip looks there by itself
    return [word for index in indexes for word in ("--extra-index-url", index)]


def _fits(name: str, begin: str, facts: Facts) -> bool:
    """Whether a wheel of torch is the one that is wanted, for this Python and processor."""
    python = read.version(facts, "platform.python")
    release = python.versions.lowest.release if python and python.versions.lowest else ()
    tag = f"-cp{release[0]}{release[1]}-" if len(release) > 1 else "-cp"
    return name.startswith(begin) and tag in name and str(facts.value("platform.arch") or "x86_64") in name


def _notes(stack: Stack, facts: Facts) -> list[str]:
    notes = []
    installed = facts.get("stack.replaces") or facts.get("pkg.vllm")
    if installed and installed.origin.source != "stack" and str(stack.vllm) not in str(installed.value):
        notes.append(
            f"vLLM {shown(installed.value)} is installed here: use a new environment, so that it stays as it is."
        )
    else:
        notes.append("Use a new, empty environment.")
    if stack.build == "cuda" and not facts.has("driver."):
        newer = f" ({stack.driver_ptx} or newer for Blackwell)" if stack.driver_ptx else ""
        notes.append(f"The driver is not known: it must be {first_driver(stack, facts)} or newer{newer}.")
    return notes


def first_driver(stack: Stack, facts: Facts) -> str:
    """The first driver that serves the stack, by the numbers of this system: Windows counts otherwise, and WSL runs its driver."""
    windows = tables.driver_for_major(int(stack.cuda.split(".")[0]), windows=True)
    return (windows or stack.driver) if read.is_windows_driver(facts) else stack.driver
