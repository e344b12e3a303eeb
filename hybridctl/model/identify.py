"""Which family a name means, and what else the name says outright. A name that several families share means none of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hybridctl.globs import glob
from hybridctl.model.families import Family, Variant, load_families
from hybridctl.model.quant import from_name
from hybridctl.patterns import late

_CACHE_FOLDER = late(r"models--[\w.-]+?--([\w.-]+)")
_GDN = late(r"\bgdn\b|gated[ _-]?delta[ _-]?net", re.IGNORECASE)
_HYBRID = late(r"\bhybrid\b", re.IGNORECASE)
_REMARK = late(r"\([^()]*\)?")
# Drafters for speculative decoding carry the name of the model that they draft for, and are another architecture.
_DRAFTER = late(r"eagle|dflash|dspark|drafter|medusa|speculator")
_MAX_NAME, _MAX_PARTS = 400, 6


@dataclass(frozen=True, slots=True)
class Identity:
    """What a name says of a model."""

    family: Family | None = None
    variant: Variant | None = None
    quant: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    """Kinds of layers that the name itself mentions ("Qwen hybrid GDN")."""
    hybrid: bool | None = None


def identify(name: str) -> Identity:
    """Read a hub name, a path, an Ollama tag, or what a person wrote."""
    name = name.strip()[:_MAX_NAME]
    outside = _REMARK.sub(" ", name)  # "Qwen3.5 (method qwen3_next_mtp)": what stands in brackets is a remark
    for part in _parts(outside):
        found = _family(part)
        if found is not None:
            return _identity(name, found, _variant(found, part))
    return _identity(name, None, None)


def _identity(name: str, family: Family | None, variant: Variant | None) -> Identity:
    layers = ["gdn"] if _GDN.search(name) else []
    hybrid = True if layers or _HYBRID.search(name) else None
    return Identity(family, variant, from_name(name), layers, hybrid)


def _parts(name: str) -> list[str]:
    """Parts of a name that may carry the model's name, the last one first."""
    text = _CACHE_FOLDER.sub(r"\1", name)
    parts = [p for p in re.split(r"[/\\]", text) if p.strip(". ")]
    return [normal(p) for p in reversed(parts[-_MAX_PARTS:])]


def normal(name: str) -> str:
    """Lower case, with ``-`` for blanks and underscores."""
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def _family(part: str) -> Family | None:
    """The family whose pattern fits most closely; none when two fit equally, or when one is distilled into another."""
    if _DRAFTER.search(part):
        return None
    scored = [(score, f) for f in load_families() if (score := _score(f.names, part))]
    if not scored:
        return None
    if "distill" in part and len({f.id for _, f in scored}) > 1:
        return None
    best = max(score for score, _ in scored)
    winners = [f for score, f in scored if score == best]
    return winners[0] if len(winners) == 1 else None


def _variant(family: Family, part: str) -> Variant | None:
    scored = [(score, v) for v in family.variants if (score := _score(v.names, part))]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _score(patterns: tuple[str, ...], part: str) -> int:
    """Number of literal characters of the longest pattern that fits, plus one; 0 when none fits."""
    return max((1 + len(re.sub(r"\[[^\]]*\]|[*?]", "", p)) for p in patterns if glob(part, p)), default=0)
