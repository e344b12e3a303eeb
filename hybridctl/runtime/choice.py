"""Which model ``hybridctl serve`` means where none, or one that has been prepared, is named."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hybridctl import overlays
from hybridctl.errors import UsageError
from hybridctl.overlays import Prepared
from hybridctl.runtime.checkpoint import Checkpoint, of_overlay


class UnclearError(UsageError):
    """No model is named, and the overlays that are there do not say which one is meant. ``found``: what is there."""

    def __init__(self, message: str, hint: str, found: list[Prepared]) -> None:
        super().__init__(message, hint)
        self.found = found


def the_prepared_one(commands: Collection[str]) -> tuple[Checkpoint, list[str]]:
    """The one overlay that can be served, and a line for each folder beside it that can't.

    Args:
        commands: names of the commands of hybridctl: only what is there is proposed.

    Raises:
        UnclearError: none, or several.
    """
    found = overlays.listing()
    usable = [overlay for overlay in found if not overlay.problem]
    if len(usable) == 1:
        lines = [f"{o.folder} can't be served: {o.problem}" for o in found if o.problem]
        return of_overlay(usable[0]), lines
    if usable:
        newest = max((o.manifest.created, o.name) for o in usable if o.manifest is not None)[1]
        raise UnclearError(
            f"no MODEL given, and {len(usable)} are prepared in {overlays.root()}",
            f"hybridctl serve {newest}",
            found,
        )
    make = "hybridctl prepare MODEL, or " if "prepare" in commands else ""
    more = "" if make else ", or hybridctl serve MODEL"
    none = f"none of the {len(found)} folders in {overlays.root()} can be served" if found else "none is prepared"
    raise UnclearError(f"no MODEL given, and {none}", f"{make}hybridctl serve --demo{more}", found)


def prepared_from(checkpoint: Checkpoint) -> list[str]:
    """A line for each overlay that was prepared from a model that is about to be served as it is."""
    if checkpoint.prepared is not None or checkpoint.demo:
        return []
    own = {checkpoint.name, checkpoint.location}
    return [
        f"{checkpoint.name} is served as it is; prepared from it (routing: {o.manifest.routing}): hybridctl serve {o.name}"
        for o in overlays.listing()
        if o.manifest is not None and not o.problem and o.manifest.model in own
    ]


def row(overlay: Prepared) -> dict[str, Any]:
    """One overlay for ``--json``."""
    known = overlay.manifest
    return {
        "name": overlay.name,
        "folder": str(overlay.folder),
        "model": known.model if known else None,
        "revision": known.revision if known else None,
        "routing": known.routing if known else None,
        "vllm": known.vllm if known else None,
        "created": known.created.isoformat() if known else None,
        "problem": overlay.problem,
    }
