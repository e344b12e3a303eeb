"""Where an installation on this machine finds torch besides pip's index: wheels that lie here, and the user's own index.

Only torch's CPU build is asked about: the Python package index carries none for Linux, and machines without a way to torch's own
index have it in a folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from hybridctl.doctor.facts.model import Fact, Origin

_FIND_LINKS, _INDEX = "PIP_FIND_LINKS", "HYBRIDCTL_TORCH_INDEX"
_MOST = 20


def wheel_facts(environ: Mapping[str, str] = os.environ) -> Iterator[Fact]:
    """``wheels.torch`` of the folders in ``PIP_FIND_LINKS``; addresses there are not asked."""
    folders = environ.get(_FIND_LINKS, "").split()
    names = sorted({name for folder in folders for name in _torch_wheels(folder)})[:_MOST]
    if names:
        yield Fact("wheels.torch", names, Origin("local", None, f"{_FIND_LINKS}: {', '.join(names)}"))


def index_facts(environ: Mapping[str, str] = os.environ) -> Iterator[Fact]:
    """``wheels.torch_index``: a setting of our own, so it holds for any machine that is asked about. Credentials stay unsaid."""
    if index := environ.get(_INDEX, "").strip():
        yield Fact("wheels.torch_index", f"${_INDEX}" if "@" in index else index, Origin("local", None, _INDEX))


def _torch_wheels(folder: str) -> Iterator[str]:
    path = Path(folder.removeprefix("file://"))
    try:
        with os.scandir(path) as scan:
            yield from (e.name for e in scan if e.name.startswith("torch-") and e.name.endswith(".whl"))
    except OSError:
        return  # an address, or a folder that is not there: pip says so itself
