"""Finds a model's config.json: a local folder, the Hugging Face cache, or, when asked for, the hub itself."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from pathlib import Path

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def cached_config(name: str, revision: str | None = None) -> Path | None:
    """The config.json of a local folder, of a path to one, or of the Hugging Face cache; ``None`` when there is none."""
    if local := _local(name):
        return local
    if not is_repository(name) or not _cache_may_hold(name):
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def fetch_config(name: str, timeout: float = 3.0) -> tuple[Path | None, str]:
    """Fetch one config.json from the hub into its cache. ``(path, "")``, or ``(None, why not)`` in one line.

    ``timeout`` (seconds) holds for the whole: newer releases of huggingface_hub try again for half a minute, and say so on stderr.
    """
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", str(max(1, round(timeout))))
    if local := cached_config(name):
        return local, ""
    if not is_repository(name):
        return None, f"{name[:120]!r} is neither a folder with a config.json nor a repository name"
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    failures: tuple[type[Exception], ...] = (
        OSError,
        ValueError,
        EntryNotFoundError,
        HfHubHTTPError,
        *transport_errors(),
    )
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    answer: list[tuple[Path | None, str]] = []

    def ask() -> None:
        try:
            answer.append((Path(hf_hub_download(name, "config.json", etag_timeout=timeout)), ""))
        except GatedRepoError:
            answer.append((None, f"{name}: gated; accept its licence on the hub and log in (hf auth login)"))
        except RepositoryNotFoundError:
            answer.append((None, f"{name}: the hub has no such repository, or it is private"))
        except failures as error:
            answer.append((None, f"{name}: its config.json could not be fetched ({type(error).__name__})"))

    # A daemon does not hold up the end of the program.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(timeout)
    return answer[0] if answer else (None, f"{name}: no config.json from the hub within {timeout:g} seconds")


def is_repository(name: str) -> bool:
    """Whether the text has the form ``owner/name``."""
    return _REPOSITORY.fullmatch(name) is not None and ".." not in name and "--" not in name


def _cache_may_hold(name: str) -> bool:
    """A look at the folder name, which spares the import of huggingface_hub (0.13 s) when the model was never downloaded."""
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    root = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or str(Path(home) / "hub")
    # Path.expanduser raises for the name of an unknown user.
    return Path(os.path.expanduser(os.path.expandvars(root)), f"models--{name.replace('/', '--')}").is_dir()  # noqa: PTH111


def transport_errors() -> list[type[Exception]]:
    """Errors of the HTTP client that this huggingface_hub uses; they are no OSError."""
    clients = [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]
    return [client.HTTPError for client in clients]


def _local(name: str) -> Path | None:
    if not name or "\0" in name or len(name) > 1000:
        return None
    path = Path(os.path.expanduser(name) if name.startswith("~/") else name)  # noqa: PTH111
    try:
        if path.is_file() and path.name.endswith(".json"):
            return path
        inside = path / "config.json"
        return inside if inside.is_file() else None
    except OSError:
        return None
