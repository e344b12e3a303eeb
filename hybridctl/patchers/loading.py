"""Renames tensors of an overlay while they are loaded: what is written for it."""

from __future__ import annotations

from collections.abc import Sequence

from hybridctl.errors import UsageError
from hybridctl.model.inventory import Inventory, part_of
from hybridctl.model.name_patterns import pattern_of
from hybridctl.model.renaming import rename_all
from hybridctl.overlays import Loading, NameRule
from hybridctl.patchers.config import Change, Patched
from hybridctl.runtime.overlay_min import PREFIX, RENAMED, plain_architecture
from hybridctl.runtime.vllm_plugin.window import check_version


def write(patched: Patched, rules: Sequence[NameRule], inventory: Inventory, vllm: str) -> Loading:
    """Put the class that only the plugin brings into config.json, so that no vLLM serves the folder without the rules.

    Raises:
        UsageError: a vLLM that the plugin does not know, or tensors of a draft head among those that are renamed.
    """
    check_version(vllm)
    names = rename_all((t.name for t in inventory.tensors), rules)
    if draft := [name for name in names if part_of(name) == "draft"]:
        raise UsageError(
            f"{draft[0]} would have to be renamed, and the plugin renames nothing of a draft head",
            "take another export, or the publisher's own",
        )
    architecture = plain_architecture(patched.document)
    named = str(patched.document["architectures"][0])
    if not named.startswith(PREFIX):
        reason = "a name that only hybridctl's plugin knows, so that no vLLM serves it without the rules for names"
        patched.put(("architectures", 0), RENAMED + architecture, Change("architectures", "architectures.0", reason))
    return Loading(architecture=architecture, names=list(rules))


def shown(rules: Sequence[NameRule], inventory: Inventory) -> list[tuple[NameRule, int, str, str]]:
    """Each rule with the number of tensors that it renames, the first pattern of them, and what that becomes."""
    found, names = [], {t.name: t.name for t in inventory.tensors}
    for rule in rules:
        changed = rename_all(names.values(), (rule,))
        old = next(iter(changed), "")
        found.append((rule, len(changed), pattern_of(old), pattern_of(changed.get(old, ""))))
        names = {first: changed.get(now, now) for first, now in names.items()}
    return found
