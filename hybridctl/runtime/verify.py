"""``hybridctl verify``: does a server route as its checkpoint says, answer as the reference does, and was it trained for it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hybridctl.errors import HybridctlError, UsageError
from hybridctl.runtime import reference_probe, routing_probe, run_dir
from hybridctl.runtime.checkpoint import DEMO_NAME, Checkpoint, demo, find
from hybridctl.runtime.http import Client
from hybridctl.runtime.reference_probe import Agreement
from hybridctl.runtime.routing_probe import Row

CLOSE, HALF = 1e-3, 0.25
"""Largest difference of log-probabilities that passes: of float32, of half types."""
ANSWER = 48


@dataclass(frozen=True)
class Perplexity:
    """Of one routing; ``factor`` is the multiple of the served one, with its interval."""

    name: str
    value: float
    factor: tuple[float, float, float] | None = None


@dataclass
class Report:
    """What was found. ``skipped`` says in words what could not be looked at."""

    url: str
    model: str
    rule: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    agreement: Agreement | None = None
    perplexities: list[Perplexity] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def routed_right(self) -> bool:
        return bool(self.rows) and all(row.right for row in self.rows)

    @property
    def agrees(self) -> bool | None:
        if self.agreement is None:
            return None
        return self.agreement.different == 0 and self.agreement.worst <= HALF

    @property
    def trained(self) -> bool | None:
        """Whether the served routing is the best of those compared; None where none was, or the interval does not say."""
        factors = [p.factor for p in self.perplexities if p.factor is not None]
        if not factors:
            return None
        if all(low > 1 for _, low, _ in factors):
            return True
        return False if any(high < 1 for _, _, high in factors) else None

    @property
    def passed(self) -> bool:
        return self.routed_right and self.agrees is not False and self.trained is not False

    def verdict(self) -> list[str]:
        """Plain sentences."""
        wrong = [row for row in self.rows if not row.right]
        lines = [
            "routing as configured"
            if self.routed_right
            else f"NOT routed as configured: {len(wrong)} of {len(self.rows)}"
        ]
        if self.agreement is not None:
            a = self.agreement
            kind = "" if a.worst <= CLOSE else ", as half precision does"
            apart = f"{a.different} of {a.tokens} tokens differ, log-probabilities by up to {a.worst:.2g}"
            said = (
                f"matches the reference to {a.worst:.1e}{kind}"
                if self.agrees
                else f"does NOT match the reference: {apart}"
            )
            lines.append(said)
        served = next((p for p in self.perplexities if p.factor is None), None)
        if served is not None and self.trained is not None:
            others = [p for p in self.perplexities if p.factor is not None]
            best = min(others, key=lambda p: p.value)
            if self.trained:
                told = ", ".join(f"{p.name} {p.value:.2f}" for p in others)
                lines.append(f"trained for this routing: perplexity {served.value:.2f}; otherwise routed: {told}")
            else:
                lines.append(
                    "this checkpoint was not trained for this routing: "
                    f"perplexity rises from {best.value:.2f} ({best.name}) to {served.value:.2f}"
                )
        return lines

    def to_json(self) -> dict[str, Any]:
        a = self.agreement
        return {
            "schema_version": 1,
            "url": self.url,
            "model": self.model,
            "rule": self.rule,
            "routing": [
                {
                    "length": r.length,
                    "last": r.last,
                    "expected_last": r.expected_last,
                    "counted": r.shares,
                    "expected": r.expected,
                    "right": r.right,
                }
                for r in self.rows
            ],
            "reference": None
            if a is None
            else {
                "tokens": a.tokens,
                "distinct": a.distinct,
                "different": a.different,
                "worst": a.worst,
            },
            "perplexity": [{"routing": p.name, "value": p.value, "factor": p.factor} for p in self.perplexities],
            "skipped": self.skipped,
            "passed": self.passed,
            "verdict": self.verdict(),
        }


@dataclass(frozen=True)
class Subject:
    """A server and the checkpoint behind it."""

    url: str
    checkpoint: Checkpoint


def running(what: str | None, model: str | None) -> Subject | None:
    """The running server that is meant by an address, a model, or nothing at all; None: none runs it.

    Args:
        model: the checkpoint behind an address that is not ours.

    Raises:
        UsageError: several could be meant, or none and nothing is named.
    """
    alive = [r for r in run_dir.runs() if r.alive and r.content.get("state") == "ready"]
    if what is not None and what.startswith(("http://", "https://")):
        url = what.rstrip("/")
        run = next((r for r in alive if _same(url, str(r.content.get("url")))), None)
        source = model or (str(run.content["source"]) if run else None)
        if source is None:
            raise UsageError(
                f"{url} is no server of ours: name the checkpoint that it serves",
                f"hybridctl verify {url} --model FOLDER",
            )
        return Subject(url, _named(source))
    if what is not None:
        names = {what, str(find(what).folder)} if what != DEMO_NAME else {what}
        alive = [r for r in alive if names & {str(r.content.get("source")), str(r.content.get("model"))}]
    if len(alive) > 1:
        urls = ", ".join(str(r.content.get("url")) for r in alive)
        raise UsageError(f"several servers run: {urls}", "hybridctl verify URL")
    if alive:
        return Subject(str(alive[0].content["url"]), _named(str(alive[0].content["source"])))
    if what is None:
        raise UsageError("no server runs", "hybridctl serve --demo, then hybridctl verify; or hybridctl verify MODEL")
    return None


def _same(a: str, b: str) -> bool:
    return a.replace("localhost", "127.0.0.1") == b.replace("localhost", "127.0.0.1")


def _named(source: str) -> Checkpoint:
    ours = demo()
    return ours if source in (str(ours.folder), ours.name) else find(source)


def verify(subject: Subject, api_key: str | None, windows: int, say: Callable[[str], None]) -> Report:
    """Run every check that can be run.

    Args:
        windows: windows of the demo's held-out text, 0 for none.
        say: takes a line before each part.
    """
    client, checkpoint = Client(subject.url, api_key), subject.checkpoint
    reply = client.get("/v1/models", 10.0)
    if reply.status != 200:
        raise HybridctlError(f"{subject.url}/v1/models: {reply.problem}")
    row = reply.json()["data"][0]
    model, context = str(row["id"]), int(row.get("max_model_len") or 0)
    dispatcher = checkpoint.dispatcher()
    if dispatcher is None:
        raise UsageError(f"{checkpoint.name} declares no routing (hybrid_config): there is nothing to verify")
    report = Report(subject.url, model, dispatcher.banner())

    config: Mapping[str, Any] = checkpoint.config["hybrid_config"]
    marks = [int(v) for v in (config.get("thresholds") or {}).values() if v is not None]
    wanted = routing_probe.lengths(dispatcher, marks, context - 1)
    say(f"routing: prompts of {', '.join(map(str, wanted))} tokens")
    report.rows = routing_probe.measure(client, model, dispatcher, wanted)

    why = reference_probe.available()
    if checkpoint.folder is None:
        why = f"the files of {checkpoint.name} are not at hand"
    if why:
        report.skipped.append(f"the reference: {why}")
        return report
    assert checkpoint.folder is not None
    starts = sorted({s for route in dispatcher.routes for s in route.starts if s})
    spots = [32, *(max(2, s - ANSWER // 2) for s in starts), *(s + 64 for s in starts)]
    tokens = routing_probe.prompt(client, model, max(spots))
    prompts = [tokens[:n] for n in spots if n + ANSWER < context]
    say(f"reference: {len(prompts)} greedy answers of {ANSWER} tokens")
    report.agreement = reference_probe.agree(client, model, checkpoint.folder, prompts, ANSWER)

    if not windows:
        report.skipped.append("perplexity by routing (--windows 0)")
        return report
    if not checkpoint.demo:
        report.skipped.append("perplexity by routing: it needs held-out text, which comes with the demo model only")
        return report
    texts = [t[: context - 1] for t in reference_probe.heldout(checkpoint.folder, windows)]
    first = starts[0] if starts else 1
    say(f"perplexity: {len(texts)} windows of held-out text, from position {first} on")
    served = reference_probe.served_losses(client, model, texts, first)
    report.perplexities.append(Perplexity("as served", reference_probe.perplexity(served)))
    others = reference_probe.wrong_routings(config, context + 1)
    results = reference_probe.reference(checkpoint.folder, texts, [first] * len(texts), list(others.values()))
    for name, rows in zip(others, results, strict=True):
        losses = [-sum(r["logprobs"]) / len(r["logprobs"]) for r in rows]
        report.perplexities.append(
            Perplexity(name, reference_probe.perplexity(losses), reference_probe.ratio(losses, served))
        )
    return report
