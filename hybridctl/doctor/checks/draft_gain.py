"""Is the server slower with drafts than without, by the numbers that the report itself gives?"""

from __future__ import annotations

import re

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Fix, Outcome
from hybridctl.patterns import late

_DRAFTS = r"(?:mtp|spec\w*|draft\w*|eagle\d?|dflash|ngram|nextn|medusa)"
_RATE = r"(\d{1,6}(?:[.,]\d+)?)\s*(?:tok(?:en)?s?\s*(?:/|per)\s*s\w*|t/s|tps)"
_OFF = late(
    rf"(?:(?:without|w/o|no|non|disabled?|off)[ _-]{{0,2}}{_DRAFTS}|{_DRAFTS}[ _-](?:off|disabled)|baseline)"
    rf"[^\d\n]{{0,40}}{_RATE}",
    re.IGNORECASE,
)
_ON = late(
    rf"(?<![\w/])(?:(?:with|enabled?|on|w/)[ _-]{{0,2}}{_DRAFTS}|{_DRAFTS}[ _-](?:on|enabled))[^\d\n]{{0,40}}{_RATE}",
    re.IGNORECASE,
)


def _rate(facts: Facts, pattern: re.Pattern[str]) -> tuple[float, Fact] | None:
    for fact in facts.all("report.said"):
        if seen := pattern.search(str(fact.value)):
            return float(seen[1].replace(",", ".")), fact
    return None


def run(context: Context) -> Outcome:
    off, on = _rate(context.facts, _OFF), _rate(context.facts, _ON)
    if off is None or on is None:
        return CHECK.unknown("tokens per second with and without drafts")
    if on[0] >= off[0]:
        return CHECK.ok("the drafts gain speed")
    return CHECK.found(
        read.finding(
            "drafts-cost-more-than-they-save",
            "Speculative decoding makes this server slower",
            "speculative",
            "warning",
            f"{on[0]:g} tokens/s with drafts against {off[0]:g} without. A step with drafts costs a drafter, a longer verification "
            "and bookkeeping; on small models, with many concurrent requests or with a drafter outside CUDA graphs that is more "
            "than the accepted tokens save, even at high acceptance.",
            [read.quote(on[1], f">= {off[0]:g}"), read.quote(off[1])],
            [
                Fix("Leave speculation off for this model and load.", "vllm serve MODEL"),
                Fix(
                    "Or measure with a single draft token.",
                    'vllm serve MODEL --speculative-config \'{"method": "mtp", "num_speculative_tokens": 1}\'',
                ),
            ],
            [
                "https://github.com/vllm-project/vllm/issues/39680",
                "https://github.com/vllm-project/vllm/issues/47277",
            ],
            "measured",
            explains=["said-speculation-slower"],
        )
    )


CHECK = Check("draft-gain", "Speed with drafts against speed without", run, phase="serving")
