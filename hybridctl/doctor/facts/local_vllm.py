"""The vLLM that an interpreter would import: where it lies, who installed it from where, and what of it is not as installed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridctl.data import read_table
from hybridctl.doctor.facts.local_dists import Dist, dists
from hybridctl.doctor.facts.local_read import local_fact, printable, regular_bytes
from hybridctl.doctor.facts.local_record import Comparison, compare
from hybridctl.doctor.facts.local_registry import REGISTRY, read_registry
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.facts.record_file import Record, parse_record

PACKAGE = "vllm"
MAX_RECORD = 16 << 20
SHOWN = 40
"""Files of one kind that are named; the rest is counted."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """A distribution that the package belongs to; ``problem`` says why its RECORD can't be used."""

    dist: Dist
    record: Record | None
    problem: str = ""


def vllm_facts(path: Sequence[str]) -> list[Fact]:
    """What can be said of the vLLM on an import path; nothing when there is none."""
    table = read_table("vllm_record.toml")
    entries = [Path(entry or ".") for entry in dict.fromkeys(path)]
    found = [d for entry in entries for d in dists(entry) if d.name.startswith(PACKAGE)]
    package = next((e / PACKAGE for e in entries if _is_package(e / PACKAGE)), None)
    for dist in found:
        address = _address(dist)
        if dist.name in table["distributions"] and address.get("dir_info", {}).get("editable") is True:
            return _editable(dist, str(address.get("url", "")), package)
    if package is None:
        return []
    owners = [
        owner
        for dist in found
        if dist.folder.parent == package.parent
        and (owner := _owner(dist, dist.name in table["distributions"])) is not None
    ]
    facts = [_fact("vllm.folder", str(package), str(package)), *_registry(package)]
    if not owners:
        return [*facts, _fact("vllm.install", "source", str(package))]
    facts.append(_fact("vllm.install", "wheel", str(package)))
    facts += [_fact("vllm.distribution", f"{o.dist.name}=={o.dist.version}", o.dist.folder.name) for o in owners]

    files, folders = frozenset(table["hashed_files"]), frozenset(table["hashed_folders"])

    def by_hash(path: str) -> bool:
        return path in files or (path.endswith(".py") and path.rpartition("/")[0] in folders)

    compared = [(o, compare(o.record, package, by_hash)) for o in owners if o.record is not None]
    if not compared:
        return [
            *facts,
            *_installer(owners[0].dist),
            _fact("vllm.record_problem", owners[0].problem, owners[0].dist.folder.name),
        ]
    # Of several owners it is the one installed last whose files are there.
    owner, result = min(compared, key=lambda pair: len(pair[1].changed) + len(pair[1].missing))
    return [*facts, *_installer(owner.dist), *_told(owner.dist, result)]


def _is_package(folder: Path) -> bool:
    return isinstance(regular_bytes(folder / "__init__.py", 1 << 20), bytes)


def _fact(key: str, value: str, quote: str) -> Fact:
    return local_fact(key, printable(value), printable(quote))


def _address(dist: Dist) -> dict[str, Any]:
    """``direct_url.json``: there when a distribution was not taken from an index."""
    data = regular_bytes(dist.folder / "direct_url.json", 1 << 16)
    try:
        document = json.loads(data) if isinstance(data, bytes) else {}
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) and isinstance(document.get("dir_info", {}), dict) else {}


def _editable(dist: Dist, url: str, package: Path | None) -> list[Fact]:
    """Its files lie where they are worked on: no RECORD lists them."""
    quote = f"direct_url.json: {url}"
    facts = [
        _fact("vllm.install", "editable", quote),
        _fact("vllm.distribution", f"{dist.name}=={dist.version}", quote),
    ]
    if package is None and url.startswith("file:///"):
        from urllib.parse import unquote

        package = Path(unquote(url.removeprefix("file://")).replace("\0", "?"), PACKAGE)
    return facts if package is None else [*facts, _fact("vllm.folder", str(package), str(package)), *_registry(package)]


def _registry(package: Path) -> list[Fact]:
    names = read_registry(package)
    if names is None:
        return []
    return [local_fact("vllm.architectures", names, printable(f"{package / REGISTRY}: {len(names)} classes"))]


def _owner(dist: Dist, known: bool) -> _Owner | None:
    """The distribution, if the package is its own. That a ``known`` one can't say so is a problem, of others it is usual."""
    data = regular_bytes(dist.folder / "RECORD", MAX_RECORD)
    problem = ""
    if isinstance(data, bytes):
        record = parse_record(data.decode("utf-8", "surrogateescape"), PACKAGE)
        if f"{PACKAGE}/__init__.py" in record.rows:
            return _Owner(dist, record)
        problem = f"a RECORD that lists {PACKAGE}/__init__.py; that of {dist.folder.name} does not"
    else:
        problem = f"the RECORD of {dist.folder.name}, which is {data}"
    return _Owner(dist, None, problem) if known else None


def _installer(dist: Dist) -> Iterator[Fact]:
    data = regular_bytes(dist.folder / "INSTALLER", 1000)
    if isinstance(data, bytes) and (name := data.decode("utf-8", "replace").strip()):
        yield _fact("vllm.installer", name, f"{dist.folder.name}/INSTALLER: {name}")
    address = _address(dist)
    url, version_control = address.get("url"), address.get("vcs_info")
    if isinstance(url, str) and url:
        if isinstance(version_control, dict):
            url = f"{version_control.get('vcs', 'git')}+{url}@{version_control.get('commit_id', '')}"
        yield _fact("vllm.install_url", url, f"{dist.folder.name}/direct_url.json: {url}")


def _told(dist: Dist, result: Comparison) -> Iterator[Fact]:
    quote = printable(f"{dist.folder.name}/RECORD")
    if result.problem:
        yield _fact("vllm.record_problem", result.problem, quote)
    yield local_fact(
        "vllm.files_checked", result.checked, f"{quote}: {result.checked} sizes and {result.hashed} hashes as recorded"
    )
    if result.unread:
        yield local_fact("vllm.record_unread", result.unread, quote)
    for key, paths in (("changed", result.changed), ("missing", result.missing), ("added", result.added)):
        if paths:
            shown = [printable(path) for path in paths[:SHOWN]]
            if len(paths) > SHOWN:
                shown.append(f"and {len(paths) - SHOWN} more")
            yield local_fact(f"vllm.files_{key}", shown, f"{quote}: {shown[0]}")
