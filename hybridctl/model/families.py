"""Model families, one file each under ``recipes/models``: names, classes, layers, and the versions that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hybridctl.data import load_compiled, read_toml, recipes_dir
from hybridctl.errors import BrokenDataError


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model class, and the vLLM releases that hold it. Empty versions: not limited on that side, as far as was looked."""

    name: str
    first_vllm: str = ""
    absent_vllm: str = ""
    """The newest release that was looked at and has it not."""
    last_vllm: str = ""
    moe: bool | None = None
    mtp: bool = False
    """A drafter class, not a model by itself."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One size of a family. ``config`` holds known config.json values; the checkpoint's own file wins over it."""

    id: str
    names: tuple[str, ...]
    architecture: str = ""
    moe: bool | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    size_gib: Mapping[str, float] = field(default_factory=dict)
    memory_gb: Mapping[str, float] = field(default_factory=dict)
    source: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServeFlag:
    """A flag for serving the family, with its reason."""

    flag: str
    reason: str
    when: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """One family. Fields as :class:`hybridctl.model.schema.FamilyModel`."""

    id: str
    title: str
    names: tuple[str, ...]
    model_types: tuple[str, ...]
    architectures: tuple[Architecture, ...]
    in_vllm: bool
    layers: tuple[str, ...]
    hybrid: bool
    moe: bool | None
    pattern: str
    own_config_vllm: str
    first_transformers: str
    absent_transformers: str
    first_sglang: str
    first_llamacpp: str
    first_ollama: str
    variants: tuple[Variant, ...]
    flags: tuple[ServeFlag, ...]
    notes: tuple[str, ...]
    source: tuple[str, ...]
    publishers: tuple[str, ...] = ()

    @property
    def first_vllm(self) -> str:
        """The release that brought the family's first class; empty when it is older than what was looked at."""
        return self.architectures[0].first_vllm if self.architectures else ""

    @property
    def last_vllm(self) -> str:
        """The last release with the family; empty when the newest one still has it."""
        return self.architectures[0].last_vllm if self.architectures else ""

    def architecture(self, name: str) -> Architecture | None:
        return next((a for a in self.architectures if a.name == name), None)

    def variant(self, variant_id: str) -> Variant | None:
        return next((v for v in self.variants if v.id == variant_id), None)


@lru_cache(maxsize=1)
def load_families() -> tuple[Family, ...]:
    """Every shipped family, by file name.

    Raises:
        BrokenDataError: a file is no valid recipe.
    """
    return tuple(_family(row) for row in load_compiled(recipes_dir() / "models", compile_family))


def family(family_id: str) -> Family | None:
    """The family with that id."""
    return next((f for f in load_families() if f.id == family_id), None)


def family_of_architecture(name: str) -> Family | None:
    """The family that has this class."""
    return next((f for f in load_families() if f.architecture(name)), None)


def family_of_type(model_type: str) -> Family | None:
    """The family that has this ``model_type``."""
    return next((f for f in load_families() if model_type in f.model_types), None)


def compile_family(path: Path) -> dict[str, Any]:
    """Read and check one recipe; the slow way, used once per change of the files.

    Raises:
        BrokenDataError: it is not valid.
    """
    from pydantic import ValidationError

    from hybridctl.model.schema import FamilyModel

    try:
        model = FamilyModel.model_validate(read_toml(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise BrokenDataError(f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if model.id != path.stem:
        raise BrokenDataError(f"{path.name}: its id is {model.id!r}; file name and id must agree")
    return model.model_dump(mode="json")


def _family(row: dict[str, Any]) -> Family:
    return Family(
        **{
            **row,
            "names": tuple(row["names"]),
            "model_types": tuple(row["model_types"]),
            "layers": tuple(row["layers"]),
            "notes": tuple(row["notes"]),
            "publishers": tuple(row["publishers"]),
            "source": tuple(row["source"]),
            "architectures": tuple(Architecture(**a) for a in row["architectures"]),
            "variants": tuple(
                Variant(**{**v, "names": tuple(v["names"]), "source": tuple(v["source"])}) for v in row["variants"]
            ),
            "flags": tuple(ServeFlag(**f) for f in row["flags"]),
        }
    )
