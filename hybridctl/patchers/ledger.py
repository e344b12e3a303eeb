"""The manifest of an overlay that was made here, and what has changed since."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path

from hybridctl import __version__, overlays
from hybridctl.overlays import Loading, Made, Manifest, OverlayFile, Prepared, StoredFlag
from hybridctl.patchers.config import Versions
from hybridctl.patchers.overlay import Materialize
from hybridctl.patchers.source import Source

MAX_HASHED = 64 << 20
"""Bytes up to which a file's digest is computed: all but weights. A shard of 5 GB would take seconds each."""


def manifest(
    folder: Path,
    source: Source,
    versions: Versions,
    routing: str,
    how: Materialize,
    patches: Iterable[str],
    flags: list[StoredFlag],
    summary: str = "",
    load: Loading | None = None,
) -> Manifest:
    """Of a folder that is filled but for its manifest."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    made = Made(
        hybridctl=__version__,
        transformers=versions.transformers,
        materialize=how,
        source=str(source.folder),
        config_sha256=source.config_sha256,
        times=_times(source),
        patches=list(patches),
        flags=flags,
        summary=summary,
    )
    return Manifest(
        model=source.model,
        revision=source.revision,
        created=datetime.now(timezone.utc).replace(microsecond=0),
        routing=routing,
        vllm=versions.vllm,
        files={name: OverlayFile(size=path.stat().st_size, sha256=digest(path)) for name, path in files.items()},
        made=made,
        load=load,
    )


def digest(path: Path) -> str | None:
    """SHA-256 of a file's content; ``None`` above :data:`MAX_HASHED`."""
    if path.stat().st_size > MAX_HASHED:
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()


def up_to_date(
    present: Manifest,
    folder: Path,
    source: Source,
    versions: Versions,
    routing: str,
    how: Materialize,
    texts: Mapping[str, str],
    flags: list[StoredFlag],
    load: Loading | None = None,
) -> bool:
    """Whether an overlay is what would be made now, and nobody has changed it since."""
    made = present.made
    if made is None or (present.vllm, present.routing, present.revision) != (versions.vllm, routing, source.revision):
        return False
    if present.load != load:
        return False
    if (made.materialize, made.flags, made.transformers) != (how, flags, versions.transformers):
        return False
    if made.source != str(source.folder) or made.config_sha256 != source.config_sha256:
        return False
    if made.times != _times(source) or set(present.files) != {*(f.name for f in source.files), *texts}:
        return False
    own = all(present.files[n].sha256 == hashlib.sha256(text.encode()).hexdigest() for n, text in texts.items())
    return own and not overlays.damage(folder, present) and not _edited(folder, present)


def _times(source: Source) -> dict[str, int]:
    return {file.name: file.path.stat().st_mtime_ns for file in source.files if file.path is not None}


def _edited(folder: Path, known: Manifest) -> list[str]:
    """Files whose content is not as it was."""
    return [n for n, told in known.files.items() if told.sha256 is not None and digest(folder / n) != told.sha256]


def drift(overlay: Prepared, versions: Versions | None) -> list[str]:
    """What has changed since an overlay was made, a line each: its own files, the checkpoint's, the releases.

    Args:
        versions: what is installed now; ``None`` where there is no vLLM.
    """
    if overlay.manifest is None or overlay.problem:
        return [overlay.problem]
    known = overlay.manifest
    lines = [f"{name} was changed since" for name in _edited(overlay.folder, known)]
    if known.made is not None:
        lines += _source_drift(known.made, known.revision)
    if versions is not None:
        pairs = [("vLLM", known.vllm, versions.vllm)]
        if known.made is not None and known.made.transformers:
            pairs.append(("transformers", known.made.transformers, versions.transformers))
        lines += [f"prepared for {n} {was}; installed is {now}" for n, was, now in pairs if was != now]
    return lines


def _source_drift(made: Made, revision: str | None) -> list[str]:
    source, lines = Path(made.source), []
    if not source.is_dir():
        return [] if made.materialize == "copy" else [f"the checkpoint's folder {source} is gone"]
    config = source / "config.json"
    if config.is_file() and hashlib.sha256(config.read_bytes()).hexdigest() != made.config_sha256:
        lines.append("the checkpoint's config.json was changed since")
    for name, time in made.times.items():
        path = source / name
        if not path.is_file():
            lines.append(f"the checkpoint's {name} is gone")
        elif path.stat().st_mtime_ns != time:
            lines.append(f"the checkpoint's {name} was changed since")
    reference = source.parent.parent / "refs" / "main"
    if revision is not None and source.parent.name == "snapshots" and reference.is_file():
        newest = reference.read_text(encoding="utf-8").strip()
        if newest != revision:
            lines.append(f"the cache holds a newer commit of the checkpoint, {newest[:12]}")
    return lines


def matching(model: str, output: Path | None) -> list[Prepared]:
    """Overlays that a person means by a name, a model or a folder; all of them for an empty name."""
    if output is not None:
        return [overlays.look(output.absolute())] if output.is_dir() else []
    path = Path(model).expanduser() if model else None
    if path is not None and (path / overlays.MANIFEST).is_file():
        return [overlays.look(path.absolute())]
    own = {model, str(path.absolute()) if path is not None else ""}
    return [
        each
        for each in overlays.listing()
        if not model or each.name == model or (each.manifest is not None and each.manifest.model in own)
    ]
