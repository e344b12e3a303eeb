"""What a stack under ``recipes/stacks`` must look like. Used when the stacks are compiled and in tests, not at every start."""

from __future__ import annotations

import datetime
from typing import Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, Field, model_validator

from hybridctl.doctor.facts.model import spec_of


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepModel(_Strict):
    """A command to run after the installation, and why."""

    text: str = Field(min_length=8)
    command: str = Field(min_length=4)


class InstallModel(_Strict):
    """How the stack gets into an empty environment with one line of pip."""

    requirements: list[str] = []
    """What the line names besides the wheel: as few packages as fix all the others."""
    indexes: list[str] = []
    """Indexes besides pip's own that hold what the requirements name."""
    wheels: dict[str, str] = {}
    """Address of the vLLM wheel by processor architecture, where the package index has another build of this number."""
    after: list[StepModel] = []


class StackModel(_Strict):
    """One pinned set, one file. The file's name is the id."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{2,60}$")
    title: str = Field(min_length=8, max_length=100)
    verdict: Literal["current", "contradictory"]
    """current: may be recommended. contradictory: recorded so that what is wrong with it can be shown."""
    summary: str = Field(min_length=20)
    build: Literal["cuda", "cpu"]
    cuda: str = ""
    """CUDA version that vLLM's wheel and torch are built for."""
    driver: str = ""
    """First Linux driver on which the stack's machine code runs."""
    driver_ptx: str = ""
    """First Linux driver that compiles the stack's PTX, where that is a newer one."""
    gpu_from: str = ""
    """Lowest compute capability."""
    python: str
    glibc: str = ""
    arch: list[Literal["x86_64", "aarch64"]] = Field(min_length=1)
    features: list[str] = []
    model: str = ""
    """The model that the set was put together for, where it was."""
    launch: str = ""
    """The launch line that comes with the set."""
    last_verified: datetime.date
    source: list[str] = Field(min_length=1)
    packages: dict[str, str] = Field(min_length=1)
    machine: dict[str, Any] = {}
    """Facts of the machine that the set was made for, by their keys; those of a machine at hand count instead."""
    install: InstallModel | None = None

    @model_validator(mode="after")
    def _whole(self) -> StackModel:
        problems = [f"machine: there is no fact {key!r}" for key in self.machine if spec_of(key) is None]
        try:
            SpecifierSet(self.python)
            for version in self.packages.values():
                Version(version)
        except (InvalidSpecifier, InvalidVersion) as error:
            problems.append(str(error))
        if self.build == "cuda" and not (self.cuda and self.driver and self.gpu_from):
            problems.append("a CUDA stack says cuda, driver and gpu_from")
        if (self.verdict == "current") != (self.install is not None):
            problems.append("current stacks say how they are installed, and only they")
        if self.install is not None:
            problems += _disagreements(self.install, self.packages)
            if self.install.wheels and set(self.install.wheels) != set(self.arch):
                problems.append("install.wheels: one wheel for each arch")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _disagreements(install: InstallModel, packages: dict[str, str]) -> list[str]:
    """Requirements that are no exact pin of the stack's own package."""
    problems = []
    for text in install.requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            problems.append(str(error))
            continue
        if str(requirement.specifier) != f"=={packages.get(requirement.name)}":
            problems.append(f"install.requirements: {text} is not what [packages] says")
    return problems
