"""Which files of a checkpoint are taken into an overlay, and what is wrong with those of a stranger.

Names come from the hub or from a folder; each is a path within it or the whole checkpoint is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from hybridctl.errors import UsageError

CONFIG = "config.json"
MAX_FILES = 10_000
_TAKEN = {".json", ".txt", ".model", ".jinja", ".tiktoken", ".safetensors"}
_OTHER_FORMATS = {"original", "onnx", "openvino", "metal", "coreml", "assets", "figures"}
"""Folders that hold the same weights for other programs, or pictures."""
_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl"}
_LFS = b"version https://git-lfs"


def check_name(name: str) -> None:
    """Raise :class:`UsageError` unless the name is a plain path within a folder."""
    path = PurePosixPath(name)
    odd = not name or "\\" in name or not name.isprintable() or len(name) > 400
    if odd or path.is_absolute() or ".." in path.parts or str(path) != name:
        raise UsageError(
            f"the checkpoint names a file {name[:80]!r}, which is no path within it", "do not load this checkpoint"
        )


def taken(name: str, weights: frozenset[str]) -> bool:
    """Whether vLLM needs the file. ``weights``: the weight files that the headers were read of."""
    path = PurePosixPath(name)
    if any(part.startswith(".") for part in path.parts) or path.parts[0] in _OTHER_FORMATS:
        return False
    if path.suffix == ".safetensors":
        return name in weights
    return path.suffix in _TAKEN and path.name != "hybridctl.json"


def no_weights(model: str, names: Iterable[str]) -> UsageError:
    """Why a checkpoint without safetensors files is not prepared."""
    suffixes = {PurePosixPath(name).suffix: name for name in names}
    if pickle := next((suffixes[s] for s in suffixes if s in _PICKLES), None):
        return UsageError(
            f"{model}: its weights are pickle files ({pickle}), which run code when they are loaded; not prepared",
            "take a safetensors export of the model",
        )
    if ".gguf" in suffixes:
        return UsageError(
            f"{model}: GGUF files ({suffixes['.gguf']}) carry their own configuration; there is nothing to prepare",
            "take the safetensors checkpoint that it was made from",
        )
    return UsageError(f"{model}: there is no weight file (*.safetensors)", "hybridctl fit MODEL needs config.json only")


def local_files(folder: Path) -> dict[str, Path]:
    """The files of a local checkpoint by name.

    Links may lead to places within the folder, and in a snapshot of the Hugging Face cache to the blobs of its own repository.

    Raises:
        UsageError: a link that leads out or nowhere, a name that is no plain path, or more files than a checkpoint has.
    """
    root = folder.resolve()
    inside = [root, *_blobs(folder)]
    found: dict[str, Path] = {}
    waiting = [folder]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            name = path.relative_to(folder).as_posix()
            if path.name.startswith("."):
                continue
            check_name(name)
            real = _real(path, name, folder)
            if path.is_symlink() and not any(real.is_relative_to(place) for place in inside):
                raise UsageError(
                    f"{folder}: {name} links to {path.readlink()}, out of the folder",
                    "copy the checkpoint (cp -rL), or name the folder that its files lie in",
                )
            if path.is_dir() and not path.is_symlink():
                waiting.append(path)
            elif path.is_file():
                found[name] = path
            elif path.is_symlink():
                raise UsageError(
                    f"{folder}: {name} links to {path.readlink()}, which is gone or a folder", "download it again"
                )
            if len(found) > MAX_FILES:
                raise UsageError(f"{folder}: more than {MAX_FILES} files are no checkpoint", "name its own folder")
    return found


def _real(path: Path, name: str, folder: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise UsageError(f"{folder}: {name} links to itself, or can't be followed", "download it again") from error


def _blobs(folder: Path) -> list[Path]:
    """``models--OWNER--NAME/snapshots/COMMIT`` has its files in ``models--OWNER--NAME/blobs``."""
    parent = folder.absolute().parent
    if parent.name == "snapshots" and parent.parent.name.startswith("models--"):
        return [(parent.parent / "blobs").resolve()]
    return []


def check_pointer(name: str, path: Path) -> None:
    """Raise :class:`UsageError` where a file is only Git LFS's pointer to it."""
    if path.stat().st_size < 1024:
        with path.open("rb") as stream:
            if stream.read(len(_LFS)) == _LFS:
                raise UsageError(
                    f"{name}: a Git LFS pointer, not the file", "git lfs pull, or download it from the hub"
                )
