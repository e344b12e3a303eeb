"""The distributions in one folder of an import path, and the entry points that they declare."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hybridctl.doctor.facts.local_read import local_fact, printable, regular_bytes
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.facts.package_names import normalise

_ENDINGS = (".dist-info", ".egg-info")


@dataclass(frozen=True, slots=True)
class Dist:
    """A distribution, by its folder of metadata. ``name`` is normalised; ``version`` is empty where the folder's name has none."""

    name: str
    version: str
    folder: Path


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A name that a distribution declares in a group."""

    group: str
    name: str
    dist: Dist


def dists(entry: Path) -> list[Dist]:
    """Every distribution in a folder, by name. Zip files and missing folders, usual on a path, hold none."""
    try:
        names = sorted(n for n in os.listdir(entry) if n.endswith(_ENDINGS))  # noqa: PTH208
    except (OSError, ValueError):
        return []
    found = []
    for folder in names:
        name, _, version = folder.rpartition(".")[0].partition("-")
        found.append(Dist(normalise(name), version, entry / folder))
    return found


def entry_points(path: tuple[str, ...], prefix: str) -> Iterator[EntryPoint]:
    """What the distributions on an import path declare in groups whose names begin with ``prefix``, in the order of the path."""
    for entry in dict.fromkeys(path):
        for dist in dists(Path(entry or ".")):
            data = regular_bytes(dist.folder / "entry_points.txt", 1 << 20)
            if not isinstance(data, bytes) or prefix.encode() not in data:
                continue
            group = ""
            for line in map(str.strip, data.decode("utf-8", "replace").splitlines()):  # as importlib.metadata reads it
                if line.startswith("[") and line.endswith("]"):
                    group = line[1:-1].strip()
                elif group.startswith(prefix) and "=" in line and not line.startswith("#"):
                    yield EntryPoint(group, line.partition("=")[0].strip(), dist)


def plugin_facts(path: tuple[str, ...]) -> list[Fact]:
    """vLLM's plugins, each as ``NAME (DISTRIBUTION, GROUP)``; an empty list where there are none."""
    found = [
        printable(f"{point.name} ({point.dist.name}, {point.group.removeprefix('vllm.')})")
        for point in entry_points(path, "vllm.")
    ]
    return [local_fact("vllm.plugins", list(dict.fromkeys(found)), "entry_points.txt of the installed distributions")]
