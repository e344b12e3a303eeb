"""The engine's classes and transformers' types for a model: what its family's recipe says, and what is installed."""

from __future__ import annotations

from packaging.version import Version

from hybridctl import tables
from hybridctl.architectures import backend_takes, registered
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._reading import Reading
from hybridctl.doctor.checks._registry import (
    CLASS_ENDS,
    ON_TRANSFORMERS,
    READING_ENDS,
    TYPE_ENDS,
    judge_installed,
    judged_vllm,
    stated_classes,
    transformers_of,
)
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Finding, Fix
from hybridctl.model.families import Architecture, Family, family, family_of_architecture, family_of_type


def _family(facts: Facts) -> tuple[Family, Fact, tuple[Architecture, ...]] | None:
    """The family, what names it, and the classes that may be meant."""
    if (named := facts.get("model.architecture")) and isinstance(named.value, list):
        for name in named.value:
            if (known := family_of_architecture(name)) and (row := known.architecture(name)):
                return known, named, (row,)
    for key, look_up in (("model.type", family_of_type), ("model.family", family)):
        if stated := facts.get(key):
            for value in stated.value if isinstance(stated.value, list) else [str(stated.value)]:
                if known := look_up(value):
                    # Without the class any of them may be meant: only what holds of all is said.
                    return known, stated, tuple(a for a in known.architectures if not a.mtp)
    return None


def _older(have: Reading, absent: str) -> bool | None:
    """Whether a version is known not to hold what ``absent`` lacks. Development builds of that very release may have it."""
    return have.within(f"<{absent}.dev0 || =={absent}")


def _lacks(have: Reading, row: Architecture) -> bool | None:
    if row.absent_vllm and _older(have, row.absent_vllm):
        return True
    if row.first_vllm and have.within(f">={row.first_vllm}") is not True:
        return None
    return False if row.first_vllm or have.within(f">={tables.releases()[0].version}") else None


def _dropped(have: Reading, row: Architecture) -> bool | None:
    if not row.last_vllm:
        return False if have.within(f"<={tables.releases()[-1].version}") else None
    following = next((r.version for r in tables.releases() if Version(r.version) > Version(row.last_vllm)), None)
    if following and have.within(f">={following}"):
        return True
    return False if have.within(f"<={row.last_vllm}") else None


def _every(answers: list[bool | None]) -> bool | None:
    return True if answers and all(answers) else False if False in answers else None


def _class(facts: Facts, known: Family, named: Fact, rows: tuple[Architecture, ...]) -> Finding | bool | None:
    vllm = judged_vllm(facts)
    if vllm is None or not rows:
        return None
    lacks = _every([_lacks(vllm, row) for row in rows])
    dropped = _every([_dropped(vllm, row) for row in rows])
    if not lacks and not dropped:
        return True if lacks is False and dropped is False else None
    if any(backend_takes(row.name, vllm.versions, transformers_of(facts)) is not False for row in rows):
        return None
    first = min((row.first_vllm for row in rows if row.first_vllm), key=Version, default="")
    last = max((row.last_vllm for row in rows if row.last_vllm), key=Version, default="")
    newest = tables.releases()[-1].version
    if lacks:
        title = f"vLLM {vllm.text} does not know {known.title} yet"
        cause = f"The class {rows[0].name} came with vLLM {first}; the registry of this release has no entry for it."
        expected = f">={first}"
        fix = Fix(f"Upgrade vLLM to {first} or newer.", f"uv pip install -U 'vllm>={first}' --torch-backend=auto")
    else:
        title = f"vLLM {vllm.text} does not serve {known.title} any more"
        cause = f"The class {rows[0].name} was removed after vLLM {last}."
        expected = f"<={last}"
        fix = Fix(
            f"Stay on the last release that has it, {last}.", f"uv pip install 'vllm=={last}' --torch-backend=auto"
        )
    return read.finding(
        "architecture-not-in-vllm",
        title,
        "arch-unknown",
        "error",
        f"{cause} Registries were read from published wheels up to {newest}.",
        [read.quote(named), vllm.evidence(expected)],
        [fix],
        known.source,
        "measured",
        explains=CLASS_ENDS,
    )


def _asks_transformers(facts: Facts, known: Family) -> tuple[bool | None, Reading | None]:
    """Whether the engine takes the configuration class from transformers, and the version that says so."""
    if read.flag(facts, "trust-remote-code") or facts.has("config.auto_map"):
        return None, None  # the checkpoint may bring its own class
    engine = read.engine(facts)
    if engine in ON_TRANSFORMERS:
        return True, None
    vllm = read.version(facts, "pkg.vllm")
    if engine not in (None, "vllm") or vllm is None or not known.own_config_vllm:
        return None, None
    own = vllm.within(known.own_config_vllm)
    return (None, None) if own is None else (not own, vllm)


def _type(facts: Facts, known: Family, named: Fact) -> Finding | bool | None:
    transformers = read.version(facts, "pkg.transformers")
    if transformers is None or not known.absent_transformers:
        return None
    asks, because = _asks_transformers(facts, known)
    if not asks:
        return None if asks is None else True
    if not _older(transformers, known.absent_transformers):
        return True if transformers.within(f">={known.first_transformers}") else None
    first = known.first_transformers
    return read.finding(
        "model-type-not-in-transformers",
        f"transformers {transformers.text} does not know {known.title}",
        "transformers-mismatch",
        "error",
        f"The model type came with transformers {first} (absent in {known.absent_transformers})"
        + (", and this vLLM has no configuration class of its own for it." if because else ".")
        + f" {READING_ENDS}",
        [transformers.evidence(f">={first}"), read.quote(named), *([because.evidence()] if because else [])],
        [Fix(f"Upgrade transformers to {first} or newer.", f"uv pip install -U 'transformers>={first}'")],
        known.source,
        "measured",
        explains=TYPE_ENDS,
    )


def by_recipe(facts: Facts) -> tuple[str, Finding | bool | None, Finding | bool | None]:
    """What is judged, and what the family's recipe says of class and type."""
    found = _family(facts)
    if found is None:
        return "", None, None
    known, named, rows = found
    # A class that the recipe does not name, beside a type that it does, is another head on the same body.
    classes = stated_classes(facts) if named.key != "model.architecture" else None
    if classes and isinstance(classes.value, list) and any(registered(name) for name in classes.value):
        return known.title, None, _type(facts, known, named)
    return known.title, _class(facts, known, named, rows), _type(facts, known, named)


def by_installed(facts: Facts) -> Finding | bool | str | None:
    """What the registry that was read from the installed vLLM says of the model."""
    if (named := stated_classes(facts)) and isinstance(named.value, list):
        return judge_installed(facts, named, named.value, every=False)
    if found := _family(facts):
        _, named, rows = found
        return judge_installed(facts, named, [row.name for row in rows], every=True)
    return None
