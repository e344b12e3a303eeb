"""Prepared overlays: where they live, and the manifest that each carries.

An overlay is a folder that stands for a checkpoint: links to (or copies of) its files, a config.json of its own, and
``hybridctl.json``. All live side by side in :func:`root`, one folder each; the folder's name is what a person types after
``hybridctl serve``. A name that begins with a dot is a draft of a run that is not done, and is not listed. A config.json that names
an architecture of vLLM's is completed when it is served; one that names the plugin's (``HybridCtl…``) is served as it stands, so
its ``hybrid_config`` says ``linear_feature_size`` where the checkpoint holds projections.

``hybridctl.json``, version 1. Unknown keys are ignored, so a writer may add some; a key that every reader must know needs a new
version::

    {"schema_version": 1,
     "model": "Qwen/Qwen3-Next-80B-A3B-Instruct",     what was prepared: OWNER/NAME, or the path of a folder
     "revision": "0123abc…",                          commit of the hub, null for a folder
     "created": "2026-11-29T12:00:00Z",               with a time zone
     "routing": "none",                               none, article, or the name of the routing's file
     "vllm": "0.32.0",                                the release that it was prepared for
     "files": {"config.json": {"size": 812, "sha256": "<64 hex digits>"}}}

``made`` may be missing: how hybridctl made the folder, and the flags that it is served with (:class:`Made`). ``load`` is there
where tensors are renamed while they are loaded (:class:`Loading`); config.json then names a class that only the plugin brings.

``files`` names every file but the manifest, by its path within the folder; ``config.json`` is one of them. Size in bytes, of what a
link leads to. ``sha256`` is null where nobody computed it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator

from hybridctl.data import data_dir
from hybridctl.errors import UsageError

MANIFEST = "hybridctl.json"
SCHEMA_VERSION = 1
MAX_MANIFEST = 16 << 20
"""Bytes of a manifest that are read; ten thousand files need about two million."""


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class OverlayFile(_Read):
    """One file of an overlay: bytes, and the digest where it is known."""

    size: int = Field(ge=0)
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


class StoredFlag(_Read):
    """A flag of vLLM that belongs to an overlay."""

    name: str = Field(pattern=r"^--?[A-Za-z][\w-]*$")
    values: list[str]
    reason: str


class NameRule(_Read):
    """One renaming of tensors. A rule that matches no tensor is an error.

    Attributes:
        id: of its row in ``recipes/tables/weight_names.toml``.
        kind: ``component``: one part of the path between two dots is ``old``; ``prefix``, ``suffix``: that end of the whole name.
    """

    id: str
    kind: Literal["component", "prefix", "suffix"]
    old: str = Field(min_length=1, max_length=256)
    new: str = Field(max_length=256)
    reason: str = ""

    @property
    def shown(self) -> str:
        """``linear_q_proj → q_proj``."""
        return f"{self.old} → {self.new or '(nothing)'}"


class Loading(_Read):
    """How the plugin loads an overlay's tensors, in every process."""

    architecture: str = Field(pattern=r"^\w+$")
    """The class by vLLM's own name."""
    names: list[NameRule] = Field(min_length=1)


class Made(_Read):
    """What ``hybridctl prepare`` did, and what it found, so that a change of either can be told."""

    hybridctl: str
    transformers: str
    """Empty where it was not known."""
    materialize: Literal["link", "hardlink", "copy"]
    source: str
    """The folder that the files lie in."""
    config_sha256: str
    """Of the checkpoint's own config.json."""
    times: dict[str, int]
    """Of the checkpoint's files, by name: nanoseconds since 1970 of the last change."""
    patches: list[str]
    flags: list[StoredFlag]
    summary: str = ""
    """What the model is and what became of it, in sentences."""


class Manifest(_Read):
    """``hybridctl.json``: see the module."""

    schema_version: Literal[1] = 1
    model: str = Field(min_length=1, max_length=4096)
    revision: str | None
    created: AwareDatetime
    routing: str = Field(min_length=1, max_length=4096)
    vllm: str = Field(min_length=1, max_length=64)
    files: dict[str, OverlayFile]
    made: Made | None = None
    load: Loading | None = None

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, OverlayFile]) -> dict[str, OverlayFile]:
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or str(path) != name or "\0" in name or "\\" in name:
                raise ValueError(f"{name!r} is no path within the folder")
        if "config.json" not in files:
            raise ValueError("config.json is missing")
        return files

    def text(self) -> str:
        """The file's content."""
        return self.model_dump_json(indent=2) + "\n"


class OverlayError(UsageError):
    """A folder that can't be used as a prepared overlay."""


@dataclass(frozen=True)
class Prepared:
    """One folder under :func:`root`. ``problem`` says why it can't be served; then ``manifest`` may be missing."""

    name: str
    folder: Path
    manifest: Manifest | None
    problem: str = ""


def root() -> Path:
    """Where overlays live (``XDG_DATA_HOME`` or ``HYBRIDCTL_HOME``). Not created here."""
    return data_dir() / "overlays"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder.

    Raises:
        OverlayError: none, or one that is damaged, of another version, or not ours.
    """
    file = folder / MANIFEST
    try:
        with file.open("rb") as handle:
            raw = handle.read(MAX_MANIFEST + 1)
        if len(raw) > MAX_MANIFEST:
            raise OverlayError(f"{MANIFEST} is larger than {MAX_MANIFEST >> 20} MiB")
        document = json.loads(raw)
    except FileNotFoundError as error:
        raise OverlayError(f"no {MANIFEST} in it") from error
    except OSError as error:
        raise OverlayError(f"{MANIFEST} can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise OverlayError(f"{MANIFEST} is no JSON: {str(error)[:100]}") from error
    if not isinstance(document, dict) or "schema_version" not in document:
        raise OverlayError(f"{MANIFEST} is not hybridctl's: it has no schema_version")
    if document["schema_version"] != SCHEMA_VERSION:
        told = ascii(document["schema_version"])[:20]
        raise OverlayError(f"{MANIFEST} has schema_version {told}; this hybridctl reads {SCHEMA_VERSION}")
    try:
        return Manifest.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part)[:60] for part in first["loc"])
        raise OverlayError(f"{MANIFEST}: {place}: {first['msg'][:160]}") from error


def damage(folder: Path, manifest: Manifest) -> str:
    """The first file that is not there or has another size; empty where all are as the manifest says. Content is not read."""
    for name, told in manifest.files.items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            if gone and path.is_symlink():
                return f"{name} links to {path.readlink()}, which is gone"
            return f"{name} is missing" if gone else f"{name}: {error.strerror}"
        if size != told.size:
            return f"{name} has {size} bytes, not {told.size}"
    return ""


def look(folder: Path) -> Prepared:
    """A folder as it is found; never raises."""
    try:
        if folder.is_symlink() and not folder.exists():
            return Prepared(folder.name, folder, None, f"links to {folder.readlink()}, which is gone")
        manifest = read_manifest(folder)
        return Prepared(folder.name, folder, manifest, damage(folder, manifest))
    except OverlayError as error:
        return Prepared(folder.name, folder, None, str(error))
    except OSError as error:
        return Prepared(folder.name, folder, None, str(error.strerror))


def listing() -> list[Prepared]:
    """Every overlay, and every folder among them that is none, by name.

    Raises:
        OverlayError: the place itself can't be read.
    """
    try:
        found = [p for p in root().iterdir() if not p.name.startswith(".") and (p.is_dir() or p.is_symlink())]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise OverlayError(f"{root()} can't be read: {error.strerror}") from error
    return [look(folder) for folder in sorted(found)]


def named(name: str) -> Prepared | None:
    """The overlay of that name; None where there is none."""
    if not name or name.startswith(".") or name != Path(name).name or "\0" in name:
        return None
    folder = root() / name
    return look(folder) if folder.is_dir() or folder.is_symlink() else None
