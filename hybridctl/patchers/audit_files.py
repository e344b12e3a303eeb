"""Faults of a checkpoint's files: pointers, pickles, shards that are cut off or gone, an index that does not agree with them.

Only directory entries, the index and the headers of weight files are read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath

from hybridctl.model.headers import LENGTH_BYTES, BadHeader, Tensor, header_length, parse_header
from hybridctl.patchers.audit_fault import Fault

INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_MAX_INDEX = 64 * 1024 * 1024
_LFS = b"version https://git-lfs"
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")
_AGAIN = "hf download OWNER/NAME {0}"


def audit_files(folder: Path) -> tuple[list[Fault], list[Tensor]]:
    """The faults of a folder's files, and the tensors of every weight file whose header is sound.

    Links are followed: a snapshot in the hub's cache is made of links.
    """
    names = sorted(p.name for p in folder.iterdir() if p.name.endswith(".safetensors"))
    faults: list[Fault] = _pointers(folder)
    index, found = _index(folder)
    faults += found
    if not names and not index:
        return [*faults, *_no_weights(folder)], []
    faults += _gone(folder, names, index)
    pointers = {fault.file for fault in faults if fault.id == "lfs-pointer"}
    used = [n for n in names if not index or n in set(index.values())]
    tensors: list[Tensor] = []
    broken: set[str] = set()
    for name in used:
        if name in pointers or not (folder / name).is_file():
            broken.add(name)
            continue
        rows, fault = _shard(folder / name)
        tensors += rows
        if fault is not None:
            faults.append(fault)
            broken.update(() if rows else (name,))
    faults += _twice(tensors)
    if index:
        faults += _index_against_shards(index, tensors, broken)
    return faults, tensors


def _pointers(folder: Path) -> list[Fault]:
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.stat().st_size < 1024:
            with path.open("rb") as stream:
                if stream.read(len(_LFS)) == _LFS:
                    found.append(
                        Fault(
                            "lfs-pointer", f"{path.name} is a Git LFS pointer, not the file", (path.name,), path.name,
                            "the repository was cloned without git-lfs: the file holds a few lines of text", "git lfs pull",
                        )
                    )  # fmt: skip
    return found


def _no_weights(folder: Path) -> list[Fault]:
    there = sorted(p.name for p in folder.iterdir() if p.is_file())
    pickles = tuple(n for n in there if n.endswith(PICKLES) and n != "training_args.bin")
    if pickles:
        what = f"the weights are pickle files only: {pickles[0]}" + (
            f" and {len(pickles) - 1} more" if pickles[1:] else ""
        )
        cause = "a pickle runs code while it is loaded, and has no header that can be checked before"
        return [Fault("pickle-only", what, pickles, pickles[0], cause, "take a safetensors export of the model")]
    return [
        Fault(
            "no-weights", "there is no weight file (*.safetensors)", tuple(there[:8]), "",
            "there is nothing to load", _AGAIN.format("").rstrip(),
        )
    ]  # fmt: skip


def _index(folder: Path) -> tuple[dict[str, str], list[Fault]]:
    path = folder / INDEX
    if not path.is_file():
        return {}, []
    try:
        if path.stat().st_size > _MAX_INDEX:
            raise ValueError("larger than any index")
        table = json.loads(path.read_bytes())["weight_map"]
        if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
            raise ValueError("weight_map is no table of file names")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"missing {error}" if isinstance(error, KeyError) else str(error)[:120]
        fault = Fault(
            "index-unreadable", f"{INDEX} is no index of weights", (why,), INDEX,
            "which file holds which tensor is not known", _AGAIN.format(INDEX),
        )  # fmt: skip
        return {}, [fault]
    outside = tuple(dict.fromkeys(v for v in table.values() if PurePosixPath(v).name != v or "\\" in v))
    if outside:
        fault = Fault(
            "index-leads-out", f"{INDEX} names a file outside the checkpoint", outside, INDEX,
            "no publisher's tool writes that", "do not load this checkpoint",
        )  # fmt: skip
        return {k: v for k, v in table.items() if v not in outside}, [fault]
    return dict(table), []


def _gone(folder: Path, names: list[str], index: dict[str, str]) -> list[Fault]:
    """Files that the index names, and without an index those that the numbers of the others tell of."""
    faults = []
    for name in sorted(set(index.values()) - set(names)):
        tensors = tuple(t for t, file in index.items() if file == name)
        faults.append(
            Fault(
                "shard-missing", f"{INDEX} names {name}, which is not there ({len(tensors)} tensors)", tensors, name,
                "vLLM loads the files that are there and then stops, or serves without those weights", _AGAIN.format(name),
            )
        )  # fmt: skip
    if index:
        return faults
    shards = [m for name in names if (m := _SHARD.fullmatch(name))]
    for stem, total in sorted({(m[1], m[3]) for m in shards}):
        there = {m[2] for m in shards if (m[1], m[3]) == (stem, total)}
        for number in range(1, min(int(total), 2000) + 1):
            if f"{number:05}" not in there:
                name = f"{stem}-{number:05}-of-{total}.safetensors"
                faults.append(
                    Fault(
                        "shard-missing", f"{name} is not there, and others of the {int(total)} are", (name,), name,
                        "vLLM loads the files that are there and then stops, or serves without those weights",
                        _AGAIN.format(name),
                    )
                )  # fmt: skip
    return faults


def _shard(path: Path) -> tuple[list[Tensor], Fault | None]:
    """The tensors of one file. A file that is cut off within its data still tells them."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        try:
            length = header_length(stream.read(LENGTH_BYTES), path.name)
            if LENGTH_BYTES + length > size:
                return [], _cut(
                    path.name, f"{size} bytes, its header alone takes {LENGTH_BYTES + length}", (path.name,)
                )
            text = stream.read(length)
            rows = parse_header(text, path.name)
        except BadHeader as error:
            return [], Fault(
                "shard-damaged", str(error), (path.name,), path.name,
                "the loader stops at this file, after those before it were read", _AGAIN.format(path.name),
            )  # fmt: skip
    try:
        parse_header(text, path.name, size)
    except BadHeader as error:
        ends = max((t.bytes for t in rows), default=0)
        lost = _behind(json.loads(text), size - LENGTH_BYTES - length)
        return rows, _cut(path.name, f"{len(lost)} of {len(rows)} tensors end behind its end", lost) if lost else Fault(
            "shard-damaged", f"{error} ({ends} bytes)", (path.name,), path.name, "the file is not sound",
            _AGAIN.format(path.name),
        )  # fmt: skip
    return rows, None


def _behind(table: dict[str, dict[str, list[int]]], data: int) -> tuple[str, ...]:
    return tuple(n for n, entry in table.items() if n != "__metadata__" and entry["data_offsets"][1] > data)


def _cut(name: str, how: str, evidence: tuple[str, ...]) -> Fault:
    return Fault(
        "shard-truncated", f"{name} is cut off: {how}", evidence, name,
        "a download or copy that did not end", _AGAIN.format(name),
    )  # fmt: skip


def _twice(tensors: list[Tensor]) -> list[Fault]:
    first: dict[str, Tensor] = {}
    doubled: dict[tuple[str, str], list[str]] = {}
    for tensor in tensors:
        if (other := first.setdefault(tensor.name, tensor)) is not tensor:
            doubled.setdefault((other.file, tensor.file), []).append(tensor.name)
    return [
        Fault(
            "tensor-twice", f"{len(names)} tensors stand in {one} and in {other}", tuple(names), other,
            "files of two exports lie in one folder; the one that is read last wins", f"rm the one left over: {one} or {other}",
        )
        for (one, other), names in doubled.items()
    ]  # fmt: skip


def _index_against_shards(index: dict[str, str], tensors: list[Tensor], broken: set[str]) -> list[Fault]:
    held = {t.name for t in tensors}
    faults = []
    gone = {n: f for n, f in index.items() if n not in held and f not in broken and f in {t.file for t in tensors}}
    for file in sorted(set(gone.values())):
        names = tuple(n for n, f in gone.items() if f == file)
        faults.append(
            Fault(
                "index-names-absent-tensor", f"{INDEX} says that {file} holds {names[0]}"
                + (f" and {len(names) - 1} more" if names[1:] else "") + "; no file does",
                names, INDEX, "index and files are of two exports, or the shard was replaced", _AGAIN.format(file),
            )
        )  # fmt: skip
    for file in sorted({t.file for t in tensors}):
        extra = tuple(t.name for t in tensors if t.file == file and t.name not in index)
        if extra:
            faults.append(
                Fault(
                    "index-lacks-tensor", f"{file} holds {extra[0]}"
                    + (f" and {len(extra) - 1} more" if extra[1:] else "") + f", which {INDEX} does not name",
                    extra, file, "index and files are of two exports, or the shard was replaced", _AGAIN.format(INDEX),
                )
            )  # fmt: skip
    return faults
