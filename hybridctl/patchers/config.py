"""Patches of a config.json for the releases that will read it: spellings, names and fields, from ``config_patches.toml``.

A patch is a change of the text; what it does not name stays as it was, order and unknown keys included.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hybridctl.architectures import aliases
from hybridctl.errors import HybridctlError
from hybridctl.flags import read_table
from hybridctl.patchers.json_edit import Path, drop, parse, put
from hybridctl.versions import parse_condition, parse_version

_PARTS = ("text_config", "vision_config", "llm_config", "language_config")


@dataclass(frozen=True, slots=True)
class Versions:
    """What will read the file. ``transformers`` is empty where it is not known."""

    vllm: str
    transformers: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One value that is written. ``field``: its name; ``path``: where, ``text_config.layer_types`` or the like."""

    field: str
    path: str
    reason: str
    source: tuple[str, ...] = ()


@dataclass
class Patched:
    """A config.json and what was changed in it."""

    before: str
    after: str
    document: dict[str, Any]
    changes: list[Change] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def put(self, path: Path, value: Any, change: Change | None = None) -> None:
        """Write one value.

        Raises:
            HybridctlError: the edited text does not say what it should; nothing was changed.
        """
        after = put(self.after, path, value)
        expected = _with(self.document, path, value)
        if parse(after, "config.json") != expected:
            raise HybridctlError(f"config.json: {_dotted(path)} can't be written without changing more than that")
        self.after, self.document = after, expected
        if change is not None:
            self.changes.append(change)

    def drop(self, key: str, change: Change) -> None:
        """Take a key of the document itself out.

        Raises:
            HybridctlError: as :meth:`put`.
        """
        after = drop(self.after, (key,))
        expected = {name: value for name, value in self.document.items() if name != key}
        if parse(after, "config.json") != expected:
            raise HybridctlError(f"config.json: {key} can't be taken out without changing more than that")
        self.after, self.document = after, expected
        self.changes.append(change)

    @property
    def diff(self) -> str:
        """A unified diff; empty where nothing changes."""
        return unified("config.json", self.before, self.after)


def unified(name: str, before: str, after: str) -> str:
    """A unified diff of one file, as ``patch`` reads it; empty for equal texts."""
    lines: list[str] = []
    for line in difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{name}" if before else "/dev/null",
        f"b/{name}",
    ):
        lines.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(lines)


@lru_cache(maxsize=1)
def _table() -> Mapping[str, list[dict[str, Any]]]:
    return read_table("config_patches.toml")


def patch(text: str, versions: Versions) -> Patched:
    """The config.json that these releases read as it is meant.

    Raises:
        BadJsonError: a text that is no configuration.
    """
    document = parse(text, "config.json")
    made = Patched(text, text, document)
    _classes(made, versions)
    _rename(made)
    _spell(made, versions)
    _fill(made, versions)
    return made


def _rename(made: Patched) -> None:
    for rule in _table()["rename"]:
        for path, value in list(_values(made.document, rule["field"])):
            if isinstance(value, str) and value.startswith(rule["from"]):
                new = rule["to"] + value.removeprefix(rule["from"])
                named = f"{value} → {new}: {rule['reason']}"
                made.put(path, new, Change(rule["field"], _dotted(path), named, tuple(rule["source"])))


def _classes(made: Patched, versions: Versions) -> None:
    """Names of classes, from ``architecture_aliases.toml``."""
    version = parse_version(versions.vllm)
    for alias in aliases():
        for path, value in list(_values(made.document, "architectures")):
            new = alias.of(value) if isinstance(value, str) else None
            # The type beside the class: that of a text part says nothing of the class of the whole.
            beside = _at(made.document, path[:-2]).get("model_type")
            if new is None or (alias.model_types and beside not in alias.model_types):
                continue
            told = f"{value} → {new}: {alias.reason}"
            if alias.holds(version) is False:
                made.warnings.append(f"{_dotted(path)}: {value} is {new} in vLLM {alias.vllm}; {versions.vllm} is none")
            else:
                made.put(path, new, Change("architectures", _dotted(path), told, alias.source))


def _spell(made: Patched, versions: Versions) -> None:
    done: set[str] = set()
    for rule in _table()["spelling"]:
        if rule["field"] in done or not _reads(rule, versions):
            continue
        for owner in _owners(made.document, rule["model_types"]):
            stated = _at(made.document, (*owner, rule["field"]))
            if not isinstance(stated, list):
                continue
            done.add(rule["field"])
            wrong = [i for i, kind in enumerate(stated) if kind in rule["names"] and kind not in rule["accepts"]]
            for i in wrong:
                made.put((*owner, rule["field"], i), rule["write"])
            if wrong:
                names = ", ".join(dict.fromkeys(str(stated[i]) for i in wrong))
                reader = f"vLLM {versions.vllm}"
                if "transformers" in rule or parse_condition(rule["vllm"]).intervals[-1].high is None:
                    reader += f" with transformers {versions.transformers or '(not known)'}"
                reason = f"{len(wrong)} × {names} → {rule['write']}: {reader} takes {', '.join(rule['accepts'])}"
                path = _dotted((*owner, rule["field"]))
                made.changes.append(Change(rule["field"], path, reason, tuple(rule["source"])))


def _fill(made: Patched, versions: Versions) -> None:
    for rule in _table()["missing"]:
        if not _reads(rule, versions):
            continue
        # A text part of its own is the one that is read.
        owners = list(_owners(made.document, rule["model_types"]))
        for owner in owners[-1:]:
            part = _at(made.document, owner)
            name = rule["field"]
            if part.get(name) is not None or (name not in part and not rule["absent"]):
                continue
            value = part.get(rule["from_field"]) or rule["default"]
            path = (*owner, name)
            if value not in rule["allowed"]:
                told = f"{rule['from_field']} is {str(value)[:40]!r}"
                made.warnings.append(f"config.json: {_dotted(path)} is missing, and {told}: {rule['reason']}")
                continue
            made.put(path, value, Change(name, _dotted(path), f"{value!r}: {rule['reason']}", tuple(rule["source"])))


def _reads(rule: Mapping[str, Any], versions: Versions) -> bool:
    for package in ("vllm", "transformers"):
        if condition := rule.get(package):
            version = parse_version(getattr(versions, package))
            if version is None or version.within(parse_condition(condition)) is not True:
                return False
    return True


def _owners(document: Mapping[str, Any], types: list[str]) -> Iterator[Path]:
    """The document and its parts, where their own or the document's type is one of these."""
    if document.get("model_type") in types:
        yield ()
    inner = document.get("text_config")
    if isinstance(inner, dict) and (inner.get("model_type") in types or document.get("model_type") in types):
        yield ("text_config",)


def _values(document: Mapping[str, Any], name: str) -> Iterator[tuple[Path, Any]]:
    owners: list[Path] = [(), *((part,) for part in _PARTS)]
    for owner in owners:
        holder = _at(document, owner)
        value = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(value, list):
            yield from (((*owner, name, i), each) for i, each in enumerate(value))
        elif value is not None:
            yield (*owner, name), value


def _at(document: Any, path: Path) -> Any:
    for key in path:
        if isinstance(document, dict):
            document = document.get(key)
        else:
            return None
    return document


def _with(document: Any, path: Path, value: Any) -> Any:
    """A copy with a value at a path."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(document, list):
        return [_with(each, rest, value) if i == key else each for i, each in enumerate(document)]
    return {**document, str(key): _with(document.get(key), rest, value)}


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))
