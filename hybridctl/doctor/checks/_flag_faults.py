"""What is wrong with the flags of a launch line, by what released wheels define."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._reading import Reading
from hybridctl.doctor.facts.launchers import image_version
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Finding, Fix
from hybridctl.flags import Hint, Window, abbreviates, flag_window, hints, nearest_flags, newest_checked
from hybridctl.patterns import late

_WRITTEN = late(r"""["']?(?:--|–|—)([A-Za-z][\w-]*)""")
_PLAIN_KEY = late(r"""["']?([A-Za-z][\w-]*)["']?\s*:""")
# Not vLLM's own parser: help and version of argparse, and flags that a plugin package adds.
_ALWAYS = {"help", "version"}
_PLUGIN_FLAGS = {"omni", "stage-configs-path", "deploy-config"}
_SOURCE = ["https://docs.vllm.ai/en/stable/cli/serve/"]


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag as it stands on the line, and the releases that take it."""

    name: str
    fact: Fact
    window: Window | None


def written_flags(facts: Facts) -> list[Flag]:
    """The long flags as they stand on the line. Short ones and what was derived from another flag are left out."""
    found: dict[str, Flag] = {}
    for fact in facts:
        if not fact.key.startswith("flag.") or fact.origin.source != "command":
            continue
        m = _WRITTEN.match(fact.origin.quote) or _PLAIN_KEY.match(fact.origin.quote)
        if m is None:
            continue
        name = m[1].replace("_", "-")
        window = flag_window(name)
        if window is None and name.startswith("no-"):
            window = flag_window(name[3:])
        if name not in _ALWAYS and not (window is None and _is_install_flag(fact)):
            found.setdefault(name, Flag(name, fact, window))
    return [] if _PLUGIN_FLAGS & set(found) else list(found.values())


def _is_install_flag(fact: Fact) -> bool:
    return fact.key in ("flag.torch-backend", "flag.index-url", "flag.extra-index-url", "flag.find-links")


def _may_be_patched(facts: Facts, have: Reading | None) -> bool:
    """Whether the engine may be something else than a release that was looked at."""
    image = facts.value("command.image")
    if have is None:
        own = isinstance(image, str) and re.fullmatch(r"(?:docker\.io/)?vllm/vllm-openai(?::latest)?", image)
        return read.is_fork(facts) or (image is not None and not own and image_version(str(image)) is None)
    return not have.is_release or have.within(f"<={newest_checked()}") is not True


def unknown(written: list[Flag], facts: Facts, have: Reading | None) -> Finding | None:
    strange = [f for f in written if f.window is None and not abbreviates(f.name)]
    if not strange or _may_be_patched(facts, have):
        return None
    names = ", ".join(f"--{f.name}" for f in strange)
    return read.finding(
        "flag-unknown",
        f"No vLLM release takes {names}"[:120],
        "config",
        "error",
        f"The argument parser refuses {names} before anything is loaded: of the releases from 0.6.3 to {newest_checked()} none "
        "defines it." + "".join(_foreign(f.name) for f in strange),
        [read.quote(f.fact, "a flag of vLLM") for f in strange],
        [_fix(f.name) for f in strange],
        _SOURCE,
        "measured",
        ("cli-unrecognized-arguments",),
    )


def _foreign(name: str) -> str:
    hint = hints().get(name, Hint())
    return f" --{name} is a flag of {hint.of}." if hint.of else ""


def _fix(name: str) -> Fix:
    hint = hints().get(name)
    if hint is not None:
        instead = f"Write {hint.use} instead of --{name}" if hint.use else f"Remove --{name}"
        return Fix(f"{instead}: {hint.why}." if hint.why else f"{instead}.")
    near = nearest_flags(name)
    if near:
        return Fix(f"Correct --{name}; near it: {', '.join('--' + n for n in near)}.")
    return Fix(f"Remove --{name}, or see which flags there are.", "vllm serve --help=all")


def wrong_release(written: list[Flag], have: Reading | None) -> list[Finding]:
    if have is None:
        return []
    new: list[Flag] = []
    gone: list[Flag] = []
    for flag in written:
        if flag.window is not None and flag.window.holds(have.versions) is False:
            before = flag.window.absent_before
            (new if before is not None and have.within(f"<={before}") else gone).append(flag)
    return [f for f in (_too_new(new, have), _removed(gone, have)) if f]


def _too_new(flags: list[Flag], have: Reading) -> Finding | None:
    if not flags:
        return None
    names = ", ".join(f"--{f.name}" for f in flags)
    first = ", ".join(
        f"--{f.name}: in {f.window.first}, not yet in {f.window.absent_before}" for f in flags if f.window
    )
    return read.finding(
        "flag-too-new",
        f"vLLM {have.text} does not take {names} yet"[:120],
        "config",
        "error",
        f"The launch line was written for a newer release ({first}); vLLM {have.text} refuses it as unrecognized.",
        [*(read.quote(f.fact, f">= {f.window.first}" if f.window else "") for f in flags), have.evidence()],
        [
            Fix(f"Upgrade vLLM to {flags[0].window.first if flags[0].window else ''} or newer."),
            Fix(f"Or leave {names} out."),
        ],
        _SOURCE,
        "measured",
        ("cli-unrecognized-arguments",),
    )


def _removed(flags: list[Flag], have: Reading) -> Finding | None:
    if not flags:
        return None
    names = ", ".join(f"--{f.name}" for f in flags)
    last = ", ".join(f"--{f.name}: last in {f.window.last}, gone in {f.window.absent_from}" for f in flags if f.window)
    return read.finding(
        "flag-removed",
        f"vLLM {have.text} does not take {names} any more"[:120],
        "config",
        "error",
        f"The launch line was written for an older release ({last}); vLLM {have.text} refuses it as unrecognized.",
        [*(read.quote(f.fact, f"<= {f.window.last}" if f.window else "") for f in flags), have.evidence()],
        [_fix(f.name) if f.name in hints() else Fix(f"Leave --{f.name} out.") for f in flags],
        _SOURCE,
        "measured",
        ("cli-unrecognized-arguments",),
    )
