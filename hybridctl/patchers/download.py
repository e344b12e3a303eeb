"""Downloads what is missing of a checkpoint into the hub's cache, through huggingface_hub, after a look at the disk.

The client keeps every whole file, so an interrupted download goes on with the files that are missing. A file that was cut off is
begun anew (huggingface_hub 2.4 writes each try under a name of its own).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from hybridctl.errors import HybridctlError, UsageError
from hybridctl.model.hub_headers import BusyError, UnreachableError, asking, patiently
from hybridctl.patchers.overlay import Materialize
from hybridctl.patchers.safety import CONFIG
from hybridctl.patchers.source import Source, SourceFile

_AT_ONCE = 4
_TRIES = 3
Told = Callable[[int, str], None]
"""Called with the bytes that are there, and the name of a file that is whole now, or nothing."""


def cache() -> Path:
    """The hub's cache, as huggingface_hub finds it."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def check_disk(source: Source, folder: Path, how: Materialize) -> None:
    """Raise :class:`UsageError` where the download, or the copies after it, would not find room."""
    download = sum(file.size for file in source.missing)
    copies = sum(file.size for file in source.files) if how == "copy" else 0
    places = {"the hub's cache": (_there(cache()), download), "the overlay": (_there(folder), copies)}
    by_device: dict[int, int] = {}
    for place, size in places.values():
        by_device[place.stat().st_dev] = by_device.get(place.stat().st_dev, 0) + size
    for what, (place, size) in places.items():
        needed, free = by_device[place.stat().st_dev], shutil.disk_usage(place).free
        if size and needed > free:
            raise UsageError(
                f"{what} ({place}) has {_gib(free)} free, and {_gib(needed)} are needed; nothing was downloaded",
                "free some room, HF_HOME=DIR on a larger disk" + (", or --materialize link" if copies else ""),
            )


def _there(path: Path) -> Path:
    return next(p for p in (path.absolute(), *path.absolute().parents) if p.is_dir())


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.1f} MiB"


def fetch(source: Source, revision: str | None, told: Told) -> Source:
    """The source with all its files on the disk.

    Args:
        revision: as the user gave it; the cache's own reference of that name is written, too.

    Raises:
        HybridctlError: the hub refuses, stops answering, or gave something else than it had listed.
    """
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined,unused-ignore]

    disable_progress_bars()
    whole = sum(file.size for file in source.files if file.path is not None)
    paths: dict[str, Path] = {file.name: file.path for file in source.files if file.path is not None}
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        running: dict[Future[Path], SourceFile] = {pool.submit(_one, source, file): file for file in source.missing}
        while running:
            done, _ = wait(running, 0.5, FIRST_COMPLETED)
            for future in done:
                file = running.pop(future)
                paths[file.name] = future.result()
                whole += file.size
                told(whole + _partial(source, running.values()), file.name)
            if not done:
                told(whole + _partial(source, running.values()), "")
        config = patiently(lambda: _config(source.model, revision or "main"))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if config.parent.name != source.revision:
        raise HybridctlError(f"{source.model} was changed on the hub during the download", "run the same again")
    return replace(
        source, folder=config.parent, files=tuple(replace(file, path=paths[file.name]) for file in source.files)
    )


def _config(model: str, revision: str) -> Path:
    from huggingface_hub import hf_hub_download

    with asking(model, "config.json could not be fetched"):
        return Path(hf_hub_download(model, CONFIG, revision=revision))


def _one(source: Source, file: SourceFile) -> Path:
    from huggingface_hub import hf_hub_download

    for attempt in range(_TRIES):
        try:
            with asking(source.model, f"{file.name} could not be downloaded"):
                path = Path(hf_hub_download(source.model, file.name, revision=source.revision))
            break
        except (BusyError, UnreachableError):
            if attempt == _TRIES - 1:
                raise
            time.sleep(2.0**attempt)
    size, blob = path.stat().st_size, path.resolve().name
    if size != file.size:
        raise HybridctlError(f"{file.name}: the hub lists {file.size} bytes and gave {size}", "run the same again")
    if file.sha256 is not None and len(blob) == 64 and blob != file.sha256:
        raise HybridctlError(
            f"{file.name}: the hub lists the digest {file.sha256[:12]}… and gave {blob[:12]}…",
            f"hf cache rm model/{source.model}, then run the same again",
        )
    return path


def _partial(source: Source, files: Iterable[SourceFile]) -> int:
    """Bytes of files that are on the way, as the cache shows them."""
    blobs = cache() / f"models--{source.model.replace('/', '--')}" / "blobs"
    total = 0
    for file in files:
        for part in blobs.glob(f"{file.blob}*.incomplete") if file.blob else ():
            try:
                total += min(part.stat().st_size, file.size)
            except FileNotFoundError:
                continue  # it became whole in the meantime
    return total
