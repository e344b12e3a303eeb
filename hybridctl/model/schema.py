"""What a family recipe must look like. Used when recipes are compiled and in tests, not at every start."""

from __future__ import annotations

import re
from typing import Literal

from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hybridctl.versions import parse_condition

_Kind = Literal["full", "sliding", "sparse", "gdn", "kda", "mamba1", "mamba2", "lightning", "short-conv"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _version(value: str) -> str:
    if value:
        Version(value)
    return value


class ArchitectureModel(_Strict):
    """A class in vLLM's registry."""

    name: str = Field(pattern=r"^[A-Za-z]\w+$")
    first_vllm: str = ""
    absent_vllm: str = ""
    last_vllm: str = ""
    moe: bool | None = None
    mtp: bool = False

    _versions = field_validator("first_vllm", "absent_vllm", "last_vllm")(_version)

    @model_validator(mode="after")
    def _ordered(self) -> ArchitectureModel:
        if self.first_vllm and self.absent_vllm and Version(self.absent_vllm) >= Version(self.first_vllm):
            raise ValueError("absent_vllm must be older than first_vllm")
        if self.absent_vllm and not self.first_vllm:
            raise ValueError("absent_vllm without first_vllm")
        if self.first_vllm and self.last_vllm and Version(self.last_vllm) < Version(self.first_vllm):
            raise ValueError("last_vllm is older than first_vllm")
        return self


class VariantModel(_Strict):
    """One size of the family, with what is known of its config.json."""

    id: str = Field(min_length=2)
    names: list[str] = Field(min_length=1)
    architecture: str = ""
    moe: bool | None = None
    config: dict[str, bool | int | float | str | list[str] | list[int]] = {}
    size_gib: dict[str, float] = {}
    """Size of the weight files in GiB, by quantisation."""
    memory_gb: dict[str, float] = {}
    """Memory that the official recipe asks for, in GB as printed, by quantisation."""
    source: list[str] = []


class FlagModel(_Strict):
    flag: str = Field(pattern=r"^(--|[A-Z_]+=)")
    reason: str = Field(min_length=8)
    when: str = ""
    source: str = ""


class FamilyModel(_Strict):
    """One family, one file. The file's name is the id."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_]{1,40}$")
    title: str = Field(min_length=3)
    names: list[str] = Field(min_length=1)
    """Globs on the last part of a name or path, lower case, with ``-`` for blanks and underscores."""
    publishers: list[str] = []
    """Hub accounts whose repositories of this family hold unquantised weights unless their name says otherwise."""
    model_types: list[str] = []
    architectures: list[ArchitectureModel] = []
    in_vllm: bool = True
    """Whether any release that was looked at serves it."""
    layers: list[_Kind]
    hybrid: bool
    moe: bool | None = None
    """``None``: the family has both."""
    pattern: str = ""
    """The config fields that give the layer pattern."""
    own_config_vllm: str = ""
    """The vLLM releases that carry their own config class for it; others take it from transformers."""
    first_transformers: str = ""
    absent_transformers: str = ""
    first_sglang: str = ""
    first_llamacpp: str = ""
    first_ollama: str = ""
    variants: list[VariantModel] = []
    flags: list[FlagModel] = []
    notes: list[str] = []
    source: list[str] = Field(min_length=1)

    _versions = field_validator("first_transformers", "absent_transformers")(_version)

    @field_validator("names")
    @classmethod
    def _globs(cls, value: list[str]) -> list[str]:
        for glob in value:
            if re.search(r"[A-Z_ ]", glob) or not re.search(r"[a-z0-9]{2}", glob):
                raise ValueError(f"{glob!r}: lower case, '-' for blanks and underscores, and at least two letters")
        return value

    @field_validator("own_config_vllm")
    @classmethod
    def _range(cls, value: str) -> str:
        if value:
            parse_condition(value)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> FamilyModel:
        state = {"gdn", "kda", "mamba1", "mamba2", "lightning", "short-conv"} & set(self.layers)
        if self.hybrid != bool(state):
            raise ValueError("hybrid and layers disagree")
        if self.in_vllm and not self.architectures:
            raise ValueError("a family that vLLM serves has an architecture")
        known = {a.name for a in self.architectures}
        for variant in self.variants:
            if variant.architecture and variant.architecture not in known:
                raise ValueError(f"variant {variant.id}: no architecture {variant.architecture}")
        return self
