"""Reads the headers of a repository's weight files on the hub by range requests: a few hundred kilobytes a file, and no download.

Endpoint, token and proxies are those of huggingface_hub (HF_ENDPOINT, HF_TOKEN), whose session is used.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from hybridctl.errors import HybridctlError
from hybridctl.model.headers import LENGTH_BYTES, BadHeader, Tensor, header_length, parse_header
from hybridctl.model.hub import transport_errors
from hybridctl.model.inventory import Inventory, indexed_files, inventory

_FIRST = 512 * 1024
"""Bytes asked for at first: most headers are shorter, and one request is enough."""
_INDEX = "model.safetensors.index.json"
_MAX_INDEX = 64 * 1024 * 1024
_MAX_FILES = 2000
_AT_ONCE = 8
_SECONDS = 10.0
_PAUSES = (1.0, 4.0)
"""Seconds before a second and a third try."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    """One file of a repository as the hub lists it. ``blob``: its name in the client's cache; ``sha256``: of LFS files only."""

    name: str
    size: int | None
    blob: str = ""
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at one commit."""

    repository: str
    commit: str | None
    files: Mapping[str, Listed]


def read_hub(repository: str, revision: str | None = None, seconds: float = _SECONDS) -> Inventory | None:
    """The inventory of a repository on the hub; ``None`` when it has no safetensors file.

    Args:
        seconds: limit for each answer.

    Raises:
        BadHeader: a file is not sound.
        HybridctlError: the hub can't be asked, refuses, or does not answer range requests.
    """
    return read_listed(read_listing(repository, revision, seconds), seconds)


def read_listing(repository: str, revision: str | None = None, seconds: float = _SECONDS) -> Listing:
    """The files of a repository.

    Raises:
        HybridctlError: the hub can't be asked, or refuses.
    """
    from huggingface_hub import HfApi

    with asking(repository, "its files could not be listed"):
        info = HfApi().model_info(repository, revision=revision, files_metadata=True, timeout=seconds)
        files = [
            Listed(s.rfilename, s.size, (s.lfs.sha256 if s.lfs else s.blob_id) or "", s.lfs.sha256 if s.lfs else None)
            for s in info.siblings or []
        ]
        return Listing(repository, info.sha or revision, {file.name: file for file in files})


def read_listed(listing: Listing, seconds: float = _SECONDS) -> Inventory | None:
    """As :func:`read_hub`, of a repository that was listed."""
    repository, sizes = listing.repository, {name: file.size for name, file in listing.files.items()}
    with asking(repository, "its headers could not be read"):
        files = _files(repository, listing.commit, sizes, seconds)
        if not files:
            return None
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            rows = pool.map(lambda name: _tensors(repository, listing.commit, name, sizes.get(name), seconds), files)
            return inventory([tensor for row in rows for tensor in row], len(files), repository)


class BusyError(HybridctlError):
    """The hub asks to wait (429)."""


def patiently(call: Callable[[], T]) -> T:
    """What a call gives, tried again after a while where the hub asks to wait.

    Raises:
        BusyError: it still does after the last try.
    """
    for pause in _PAUSES:
        try:
            return call()
        except BusyError:
            time.sleep(pause)
    return call()


class UnreachableError(HybridctlError):
    """No answer of the hub, or one that is no answer: its cache may still do."""


@contextmanager
def asking(repository: str, failed: str) -> Iterator[None]:
    """What the hub's client raises, as one line and the next thing to type.

    Raises:
        HybridctlError: what it refuses.
        UnreachableError: it does not answer.
    """
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except GatedRepoError as error:
        raise HybridctlError(f"{repository}: gated; accept its licence on the hub", "hf auth login") from error
    except RevisionNotFoundError as error:
        raise HybridctlError(f"{repository}: the hub has no such revision", "leave --revision out") from error
    except RepositoryNotFoundError as error:
        raise HybridctlError(
            f"{repository}: the hub has no such repository, or it is private", "hf auth login"
        ) from error
    except HfHubHTTPError as error:
        status = _status(error)
        if status in (401, 403):
            raise HybridctlError(f"{repository}: the hub refuses ({status})", "hf auth login") from error
        if status == 429:
            raise BusyError(
                f"{repository}: {failed}: too many requests (429)", "wait a minute, or hf auth login, and try again"
            ) from error
        raise UnreachableError(f"{repository}: {failed} ({type(error).__name__} {status})", "try again") from error
    except _failures() as error:
        raise UnreachableError(f"{repository}: {failed} ({type(error).__name__})", "try again") from error


def _status(error: BaseException | None) -> int | None:
    """The hub's status code: older clients say that a file is not in the cache, and why it was not fetched only in the cause."""
    while error is not None:
        code = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(code, int):
            return code
        error = error.__cause__
    return None


def _failures() -> tuple[type[Exception], ...]:
    return (OSError, ValueError, *transport_errors())


def _client() -> Any:
    """The helpers around huggingface_hub's session, which it names in its documentation but not as typed exports."""
    return importlib.import_module("huggingface_hub.utils")


def _files(repository: str, revision: str | None, sizes: dict[str, int | None], seconds: float) -> list[str]:
    if _INDEX in sizes:
        size = sizes[_INDEX]
        if size is not None and size > _MAX_INDEX:
            raise BadHeader(f"{_INDEX}: {size} bytes are no index")
        return indexed_files(read_part(repository, revision, _INDEX, 0, _MAX_INDEX, seconds), _INDEX)
    named = sorted(n for n in sizes if n.endswith(".safetensors") and "/" not in n)
    if len(named) > _MAX_FILES:
        raise BadHeader(f"{repository}: {len(named)} weight files are more than any checkpoint has")
    return named


def _tensors(repository: str, revision: str | None, name: str, size: int | None, seconds: float) -> list[Tensor]:
    start = read_part(repository, revision, name, 0, _FIRST, seconds)
    length = header_length(start, name, size)
    text = start[LENGTH_BYTES : LENGTH_BYTES + length]
    if len(text) < length:
        text += read_part(repository, revision, name, LENGTH_BYTES + len(text), length - len(text), seconds)
    if len(text) < length:
        raise BadHeader(f"{name}: the hub gave {len(text)} of {length} bytes of its header", "try again")
    return parse_header(text, name, size)


def read_part(repository: str, revision: str | None, name: str, begin: int, most: int, seconds: float) -> bytes:
    """At most so many bytes of a file from a place on. What comes beyond that is never read, whatever the server sends."""
    from huggingface_hub import hf_hub_url

    return patiently(
        lambda: _part(hf_hub_url(repository, name, revision=revision), repository, name, begin, most, seconds)
    )


def _part(url: str, repository: str, name: str, begin: int, most: int, seconds: float) -> bytes:
    headers = {
        **_client().build_hf_headers(),
        "Range": f"bytes={begin}-{begin + most - 1}",
        "Accept-Encoding": "identity",
    }
    with _response(url, headers, seconds) as response:
        if response.status_code == 429:
            raise BusyError(f"{repository}: too many requests (429)", "wait a minute, or hf auth login, and try again")
        _client().hf_raise_for_status(response)
        if response.status_code != 206 and begin:
            raise HybridctlError(
                f"{name}: the server does not answer range requests", "hybridctl fit MODEL --no-headers"
            )
        data = bytearray()
        for piece in _pieces(response):
            data += piece
            if len(data) >= most:
                break
        return bytes(data[:most])


def _response(url: str, headers: dict[str, str], seconds: float) -> Any:
    """An answer whose body is not read yet: huggingface_hub has changed its client from requests to httpx."""
    session = _client().get_session()
    if hasattr(session, "stream") and callable(session.stream):
        return session.stream("GET", url, headers=headers, timeout=seconds, follow_redirects=True)
    return session.get(url, headers=headers, timeout=seconds, stream=True)


def _pieces(response: Any) -> Iterator[bytes]:
    read = getattr(response, "iter_raw", None) or getattr(response, "iter_bytes", None)
    yield from read(64 * 1024) if read is not None else response.iter_content(64 * 1024)
