"""``hybridctl verify``: does a server route as its checkpoint says, answer as it should, and was it trained for it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hybridctl.errors import HybridctlError, UsageError
from hybridctl.runtime import answers, perplexity, reference_probe, routing_probe, run_dir
from hybridctl.runtime.checkpoint import DEMO_NAME, Checkpoint, demo, find
from hybridctl.runtime.dispatcher import HybridAttentionDispatcher
from hybridctl.runtime.http import Client, NoAnswer
from hybridctl.runtime.verify_report import Comparison, Fibonacci, Report

NO_HYBRID = "no-hybrid"
ANSWER = 48
"""Tokens of each greedy answer."""
LONGEST = 2048
"""Tokens of a window of text, where the thresholds don't ask for more."""


@dataclass(frozen=True)
class Subject:
    """A server and the checkpoint behind it. ``own``: the run directory says that hybridctl started it on this machine."""

    url: str
    checkpoint: Checkpoint
    own: bool = False


@dataclass
class Asked:
    """What the server under test was asked, and what it answered: to ask a second one about."""

    first: int
    fibonacci: list[int] = field(default_factory=list)
    answers: list[answers.Answer] = field(default_factory=list)
    windows: list[list[int]] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)


def running(what: str | None, model: str | None) -> Subject | None:
    """The running server that is meant by an address, a model, or nothing at all; None: none runs it.

    Args:
        model: the checkpoint behind an address that is not ours.

    Raises:
        UsageError: several could be meant, or none and nothing is named.
    """
    alive = [r for r in run_dir.runs() if r.alive and r.content.get("state") == "ready"]
    if what is not None and is_address(what):
        url = what.rstrip("/")
        run = next((r for r in alive if _same(url, str(r.content.get("url")))), None)
        source = model or (str(run.content["source"]) if run else None)
        if source is None:
            try:
                Client(url).get("/health")
            except NoAnswer as error:
                raise UsageError(
                    f"nothing answers at {url}", "hybridctl serve --demo, or hybridctl serve MODEL"
                ) from error
            raise UsageError(
                f"{url} is no server of ours: name the checkpoint that it serves",
                f"hybridctl verify {url} --model FOLDER",
            )
        return Subject(url, named(source), run is not None)
    if what is not None:
        names = {what, str(named(what).folder)} if what != DEMO_NAME else {what}
        alive = [r for r in alive if names & {str(r.content.get("source")), str(r.content.get("model"))}]
    if len(alive) > 1:
        urls = ", ".join(str(r.content.get("url")) for r in alive)
        raise UsageError(f"several servers run: {urls}", "hybridctl verify URL")
    if alive:
        return Subject(str(alive[0].content["url"]), named(str(alive[0].content["source"])), True)
    if what is None:
        raise UsageError("no server runs", "hybridctl serve --demo, then hybridctl verify; or hybridctl verify MODEL")
    return None


def is_address(what: str) -> bool:
    return what.startswith(("http://", "https://"))


def _same(a: str, b: str) -> bool:
    return a.replace("localhost", "127.0.0.1") == b.replace("localhost", "127.0.0.1")


def named(source: str) -> Checkpoint:
    """A checkpoint, by what a run directory or a person calls it."""
    ours = demo()
    return ours if source in (str(ours.folder), ours.name) else find(source)


def verify(subject: Subject, api_key: str | None, windows: int, say: Callable[[str], None]) -> tuple[Report, Asked]:
    """Everything that can be asked of the server under test and of the reference.

    Args:
        windows: windows of the demo's held-out text, 0 for none.
        say: takes a line before each part.
    """
    client, checkpoint = Client(subject.url, api_key), subject.checkpoint
    model, context = _model(client)
    dispatcher = checkpoint.dispatcher()
    if dispatcher is None:
        raise UsageError(f"{checkpoint.name} declares no routing (hybrid_config): there is nothing to verify")
    report = Report(subject.url, model, dispatcher.banner())
    config: Mapping[str, Any] = checkpoint.config["hybrid_config"]
    marks = [int(v) for v in (config.get("thresholds") or {}).values() if v is not None]

    wanted = routing_probe.lengths(dispatcher, marks, context - 1)
    say(f"routing: prompts of {', '.join(map(str, wanted))} tokens")
    report.rows = routing_probe.measure(client, model, dispatcher, wanted, marks)

    starts = sorted({s for route in dispatcher.routes for s in route.starts if s})
    asked = Asked(_first_linear(dispatcher))
    asked.fibonacci = routing_probe.tokens_of(client, model, routing_probe.PROMPT)
    spots = {32, *(max(2, s - ANSWER // 2) for s in starts), *(s + 64 for s in starts)}
    tokens = routing_probe.prompt(client, model, max(spots))
    prompts = [asked.fibonacci, *(tokens[:n] for n in sorted(spots) if n + ANSWER < context)]
    say(f"answers: {len(prompts)} prompts, {ANSWER} tokens each, greedy")
    asked.answers = answers.greedy(client, model, prompts, ANSWER)
    report.fibonacci = Fibonacci(routing_probe.PROMPT, asked.answers[0].text)

    why = reference_probe.missing(checkpoint, [len(a.whole) for a in asked.answers])
    if not why:
        why = _reference(report, asked, checkpoint)
    if why:
        report.skipped.append(f"the reference: {why}")
    _perplexity(report, asked, client, windows, marks + starts, context - 1, say)
    if report.served is not None and not why:
        _otherwise(report, asked, checkpoint, config, context + 1, say)
    return report, asked


def _model(client: Client) -> tuple[str, int]:
    """A server's model, and the longest context that it takes."""
    reply = client.get("/v1/models", 10.0)
    if reply.status != 200:
        raise HybridctlError(f"{client.url}/v1/models: {reply.problem}")
    row = reply.json()["data"][0]
    return str(row["id"]), int(row.get("max_model_len") or 0)


def _first_linear(dispatcher: HybridAttentionDispatcher) -> int:
    return min((r.state_start for r in dispatcher.routes if r.state_start is not None), default=0)


def _reference(report: Report, asked: Asked, checkpoint: Checkpoint) -> str:
    """Why it was not compared."""
    assert checkpoint.folder is not None
    firsts = [len(a.prompt) for a in asked.answers]
    try:
        (rows,) = reference_probe.reference(checkpoint.folder, [a.whole for a in asked.answers], firsts, [None])
    except reference_probe.NoReferenceError as error:
        return str(error)
    report.agreement = answers.compare(asked.answers, rows)
    return ""


def _perplexity(
    report: Report,
    asked: Asked,
    client: Client,
    windows: int,
    marks: list[int],
    longest: int,
    say: Callable[[str], None],
) -> None:
    """What the server under test says of the demo's held-out text."""
    if not windows:
        report.skipped.append("perplexity by routing (--windows 0)")
        return
    length = min(longest, max(LONGEST, 2 * max(marks, default=0)))
    texts = perplexity.windows(client, report.model, windows, length)
    texts = [t for t in texts if len(t) > asked.first + perplexity.SHORTEST]
    if not texts:
        report.skipped.append(f"perplexity by routing: no window of text reaches beyond position {asked.first}")
        return
    say(f"perplexity: {len(texts)} windows of held-out text, up to {max(map(len, texts))} tokens")
    asked.windows, report.windows = texts, len(texts)
    asked.losses = [answers.losses(client, report.model, text) for text in texts]
    asked.ranges = perplexity.edges(marks, asked.first, max(map(len, asked.losses)))
    report.perplexities.append(perplexity.of("as served", asked.losses, asked.first, asked.ranges))


def _otherwise(
    report: Report,
    asked: Asked,
    checkpoint: Checkpoint,
    config: Mapping[str, Any],
    context: int,
    say: Callable[[str], None],
) -> None:
    """What the reference says of the same text under other routings."""
    assert checkpoint.folder is not None
    others = perplexity.other_routings(config, context)
    if why := reference_probe.missing(checkpoint, [len(text) for text in asked.windows for _ in others]):
        report.skipped.append(f"perplexity of other routings: the reference: {why}")
        return
    say(f"the reference reads the same text with {len(others)} other routings: {', '.join(others)}")
    try:
        results = reference_probe.reference(
            checkpoint.folder, asked.windows, [1] * len(asked.windows), list(others.values())
        )
    except reference_probe.NoReferenceError as error:
        report.skipped.append(f"perplexity of other routings: {error}")
        return
    for name, rows in zip(others, results, strict=True):
        losses = [[-float(p) for p in row["logprobs"]] for row in rows]
        report.perplexities.append(perplexity.of(name, losses, asked.first, asked.ranges, asked.losses))


def compare(report: Report, asked: Asked, client: Client, name: str, say: Callable[[str], None]) -> None:
    """Ask a second server about the same tokens.

    Args:
        name: what the report calls it.

    Raises:
        UsageError: it serves another model.
    """
    model, context = _model(client)
    if routing_probe.tokens_of(client, model, routing_probe.PROMPT) != asked.fibonacci:
        raise UsageError(f"{client.url} reads text as other tokens than {report.url}: it serves another model")
    longest = max(len(tokens) for tokens in (*(a.whole for a in asked.answers), *asked.windows))
    if context <= longest:
        raise UsageError(f"{client.url} takes {context} tokens, and {longest + 1} are needed", "serve the same context")
    say(f"{name}: the same {len(asked.answers)} answers")
    rows = [answers.scored(client, model, a.whole, len(a.prompt)) for a in asked.answers]
    below = answers.compare(asked.answers, rows, end=asked.first)
    above = answers.compare(asked.answers, rows, start=asked.first)
    report.comparison = Comparison(
        name,
        routing_probe.routes(client),
        asked.first,
        below if below.tokens else None,
        above if above.tokens else None,
    )
    if report.fibonacci is not None:
        (told,) = answers.greedy(client, model, [asked.fibonacci], ANSWER)
        report.fibonacci = Fibonacci(report.fibonacci.prompt, report.fibonacci.answer, told.text)
    if asked.windows:
        say(f"{name}: perplexity of the same {len(asked.windows)} windows")
        losses = [answers.losses(client, model, text) for text in asked.windows]
        report.perplexities.append(perplexity.of(name, losses, asked.first, asked.ranges, asked.losses))
