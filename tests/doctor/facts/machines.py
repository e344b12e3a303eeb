"""Recorded machines (``tests/data/machines``): a file tree, variables, what the driver and the interpreter answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from hybridctl.data import read_toml
from hybridctl.doctor.diagnose import Diagnosis, Inputs, diagnose
from hybridctl.doctor.facts.local import collect_local
from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_packages import Interpreter
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Unknown

DATA = Path(__file__).parents[2] / "data" / "machines"


@dataclass
class Recorded:
    """One machine, written out below a folder."""

    machine: Machine
    interpreter: Interpreter
    answers: tuple[list[object], str]
    facts: Facts = field(default_factory=Facts)
    unknown: list[Unknown] = field(default_factory=list)

    def look(self) -> Recorded:
        """Collect its facts."""
        self.facts, self.unknown = collect_local(
            machine=self.machine, driver=lambda: self.answers, interpreter=self.interpreter
        )
        return self

    def judge(self, command: str | None = None, model: str | None = None) -> Diagnosis:
        """What the doctor says of its facts, with a launch line or a model."""
        document = json.dumps(self.facts.to_json())
        return diagnose(Inputs(env=document, command=command, model=model))

    def missing(self) -> dict[str, str]:
        """What could not be looked at, and why."""
        return {item.check: item.needs for item in self.unknown}


def recorded(name: str, folder: Path) -> Recorded:
    """Write a machine out, without looking at it."""
    told = read_toml(DATA / name / "machine.toml")
    machine = Machine(
        told["environ"], folder, platform=told["platform"], arch=told["arch"], libc=told.get("libc", ""),
        space=lambda path: _space(told.get("space", {}), "/" + str(path.relative_to(folder)).removeprefix(".")),
    )  # fmt: skip
    python = told["interpreter"]
    for place, text in told.get("files", {}).items():
        _write(machine.path(place), text)
    for place, target in told.get("links", {}).items():
        machine.path(place).parent.mkdir(parents=True, exist_ok=True)
        machine.path(place).symlink_to(target)
    for place, answer in told.get("programs", {}).items():
        _write(machine.path(place), f"#!/bin/sh\necho '{answer}'\n")
        machine.path(place).chmod(0o755)
    for package in python["packages"]:
        installer = python.get("installers", {}).get(package.partition("-")[0], "pip")
        _write(machine.path(machine.join(python["path"][0], f"{package}.dist-info", "INSTALLER")), f"{installer}\n")
    path = tuple(str(machine.path(entry)) for entry in python["path"])
    interpreter = Interpreter(python["version"], path, "python", python["prefix"], python["base"])
    documents: list[object] = [{key: value} for key, value in told.get("driver", {}).items()]
    return Recorded(machine, interpreter, (documents, ""))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _space(table: dict[str, list[int]], place: str) -> tuple[int, int] | None:
    """Of the longest path in the table."""
    fitting = [point for point in table if place == point or place.startswith(point.rstrip("/") + "/")]
    return (table[best][0], table[best][1]) if fitting and (best := max(fitting, key=len)) else None
