"""Are answers slow, and what of the facts explains it? Speaks only where the report or the log says that they are."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _slow_reasons as reasons
from hybridctl.doctor.checks import _speed as speed
from hybridctl.doctor.findings import Outcome

READING = 8.0
"""Tokens a second: about as fast as people read. What is slower is called slow even by those who only give the number."""

CRAWL = 5.0
"""Tokens a second that no GPU server gives on purpose, for all requests together."""


def run(context: Context) -> Outcome:
    facts = context.facts
    said = reasons.thinking(facts) or speed.complaint(facts, "decode")
    rate = speed.observed(facts)
    crawls = rate is not None and rate.value < READING
    if said is None and rate is None:
        return CHECK.unknown("a speed, or a remark that says it is slow")
    if said is None and not crawls:
        return CHECK.ok(f"{rate.value:g} tokens/s" if rate else "")
    seen = tuple(f for f in (said, rate.fact if rate else None) if f is not None)
    for explain in reasons.REASONS:
        found = explain(facts, rate, seen)
        if found:
            return CHECK.found(found)
    logged = facts.all("log.tokens_per_s")
    if said is None and logged and (len(logged) < 2 or (rate is not None and rate.value > CRAWL)):
        # One line may be an interval in which hardly anything was asked.
        return CHECK.unknown("what sets the speed: the GPU, the model, the launch line")
    return CHECK.found(reasons.unexplained(seen))


CHECK = Check("decode-speed", "Speed of answers", run)
