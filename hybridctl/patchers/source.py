"""Finds a checkpoint and reads what is needed to judge it: a list of files, config.json, the headers of its weights.

A folder, a repository on the hub (through huggingface_hub; its cache where the hub is not to be asked), or on ModelScope where
VLLM_USE_MODELSCOPE says so, as vLLM does it. Nothing is downloaded here, but for ModelScope, whose client can't read headers.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from hybridctl import overlays
from hybridctl.errors import UsageError
from hybridctl.model.hub import is_repository
from hybridctl.model.hub_headers import Listing, UnreachableError, patiently, read_listed, read_listing, read_part
from hybridctl.model.inventory import Inventory, read_folder
from hybridctl.patchers import safety
from hybridctl.patchers.json_edit import MAX_TEXT


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file that an overlay takes. ``path``: where it lies here; ``None``: it must be downloaded."""

    name: str
    size: int
    path: Path | None
    blob: str = ""
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint that was found. ``files``: without config.json, which an overlay has of its own."""

    model: str
    revision: str | None
    folder: Path | None
    """Where its files lie; ``None`` until a download."""
    config: str
    files: tuple[SourceFile, ...]
    inventory: Inventory
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[SourceFile, ...]:
        return tuple(file for file in self.files if file.path is None)

    @property
    def config_sha256(self) -> str:
        return hashlib.sha256(self.config.encode()).hexdigest()


def find(model: str, revision: str | None = None) -> Source:
    """Look for a model.

    Raises:
        UsageError: it is not there, or it is not safe or not whole.
        HybridctlError: the hub refuses or does not answer, and its cache has not got it.
    """
    path = Path(os.path.expanduser(model))  # noqa: PTH111  (Path.expanduser raises for an unknown user)
    if path.is_dir():
        if (path / overlays.MANIFEST).is_file():
            raise UsageError(
                f"{model} is a prepared overlay already", "hybridctl prepare --status, or prepare its model"
            )
        if revision:
            raise UsageError("--revision goes with a repository on the hub; this is a folder", "leave it out")
        folder = path.absolute()
        return _folder(str(folder), None, folder)
    if not is_repository(model):
        raise UsageError(f"there is no folder {model[:120]!r}", "give a folder with a config.json, or OWNER/NAME")
    if os.environ.get("VLLM_USE_MODELSCOPE", "").lower() == "true":
        return _modelscope(model, revision)
    if _offline():
        return _cached(model, revision, "HF_HUB_OFFLINE is set")
    try:
        return _hub(patiently(lambda: read_listing(model, revision)))
    except UnreachableError as error:
        return _cached(model, revision, str(error))


def _hub(listing: Listing) -> Source:
    for name in listing.files:
        safety.check_name(name)
    if safety.CONFIG not in listing.files:
        raise UsageError(f"{listing.repository}: there is no config.json in it", "hybridctl prepare OWNER/NAME")
    found = read_listed(listing)
    if found is None:
        raise safety.no_weights(listing.repository, listing.files)
    size = listing.files[safety.CONFIG].size
    if size is not None and size > MAX_TEXT:
        raise UsageError(f"config.json: {size} bytes are no configuration", "do not load this checkpoint")
    config = _decoded(read_part(listing.repository, listing.commit, safety.CONFIG, 0, MAX_TEXT, 10.0))
    weights = frozenset(tensor.file for tensor in found.tensors)
    files = []
    for name, file in sorted(listing.files.items()):
        if name == safety.CONFIG or not safety.taken(name, weights):
            continue
        if file.size is None:
            raise UsageError(f"{listing.repository}: the hub does not tell the size of {name}", "try again")
        path = in_cache(listing.repository, listing.commit, name, file.size)
        files.append(SourceFile(name, file.size, path, file.blob, file.sha256))
    folder = None
    if files and (first := files[0].path) is not None and all(f.path for f in files):
        folder = Path(str(first)[: -len(files[0].name) - 1])
    return Source(listing.repository, listing.commit, folder, config, tuple(files), found)


def in_cache(repository: str, commit: str | None, name: str, size: int) -> Path | None:
    """A file of the hub's cache, where it is whole."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, name, revision=commit)
    if not isinstance(found, str):
        return None
    path = Path(found)
    return path if path.is_file() and path.stat().st_size == size else None


def _cached(model: str, revision: str | None, why: str) -> Source:
    """What the hub's cache holds.

    Raises:
        UsageError: nothing, or only a part.
    """
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model, safety.CONFIG, revision=revision)
    if not isinstance(config, str):
        raise UsageError(
            f"{model} is not in the cache of the hub, and the hub told nothing: {why}", f"hf download {model}"
        )
    folder = Path(config).parent
    return _folder(model, folder.name, folder, (f"the hub told nothing ({why}): taken from the cache, {folder.name}",))


def _modelscope(model: str, revision: str | None) -> Source:
    """As vLLM does it (``tokenizers/registry.py``): a whole snapshot through ModelScope's own client, offline where the hub's is.

    Raises:
        UsageError: there is no client, or it got nothing.
    """
    if importlib.util.find_spec("modelscope") is None:
        raise UsageError(
            "VLLM_USE_MODELSCOPE is true, and there is no package modelscope here", "pip install modelscope"
        )
    download = importlib.import_module("modelscope.hub.snapshot_download").snapshot_download
    try:
        folder = Path(str(download(model_id=model, revision=revision, local_files_only=_offline())))
    except Exception as error:
        told = " ".join(str(error).split())[:200] or type(error).__name__
        offline = " (HF_HUB_OFFLINE is set)" if _offline() else ""
        raise UsageError(
            f"{model} can't be had from ModelScope{offline}: {told}", f"modelscope download --model {model}"
        ) from error
    return _folder(model, revision, folder.absolute(), (f"ModelScope's client has downloaded it to {folder}",))


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _folder(model: str, revision: str | None, folder: Path, notes: tuple[str, ...] = ()) -> Source:
    there = safety.local_files(folder)
    if safety.CONFIG not in there:
        raise UsageError(f"{folder}: there is no config.json in it", "a model folder holds config.json and weights")
    if there[safety.CONFIG].stat().st_size > MAX_TEXT:
        raise UsageError(f"{folder / safety.CONFIG}: too large for a configuration", "do not load this checkpoint")
    for name, path in there.items():
        safety.check_pointer(name, path)
    found = read_folder(folder)
    if found is None:
        raise safety.no_weights(model, there)
    config = _decoded(there[safety.CONFIG].read_bytes())
    weights = frozenset(tensor.file for tensor in found.tensors)
    files = tuple(
        SourceFile(name, path.stat().st_size, path)
        for name, path in there.items()
        if name != safety.CONFIG and safety.taken(name, weights)
    )
    return Source(model, revision, folder, config, files, found, notes)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"config.json is not UTF-8 (byte {error.start})", "download the file again") from error
