"""Facts about the model: from its config.json, from its name, and from the recipe of its family, in that order of weight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from hybridctl.doctor.facts.model import Facts, Origin, Value
from hybridctl.doctor.facts.names import is_placeholder
from hybridctl.loose_json import flatten
from hybridctl.model.config import ModelConfig
from hybridctl.model.families import Family, Variant, family_of_architecture, family_of_type
from hybridctl.model.identify import Identity, identify
from hybridctl.model.json_spans import key_spans
from hybridctl.model.layers import mixers

_MAX_FIELDS = 5_000
_EXPERT_FIELDS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_routed_experts")


def model_facts(name: str | None, config: ModelConfig | None, config_text: str | None, launched: bool = False) -> Facts:
    """What is known of a model.

    Args:
        name: as the user calls it, or ``None``.
        config: its config.json as read, or ``None``.
        config_text: the text of that file; quotes are pieces of it.
        launched: the launch line loads exactly this name. What a publisher's bare name holds is then known; in a sentence
            the same name may mean any of its quantised copies.
    """
    facts = Facts()
    identity = Identity()
    if name and name.strip() and not is_placeholder(name):
        name = name.strip()
        identity = identify(name)
        if launched and not identity.quant and _is_original(name, identity):
            identity = replace(identity, quant=["none"])
        facts.add("model.name", name, Origin("model", None, name))
    else:
        name = ""
    if config is not None:
        _Config(config, config_text or "", facts, bool(identity.quant)).state()
    _identity(facts, name, identity, config)
    return facts


def _is_original(name: str, identity: Identity) -> bool:
    return identity.family is not None and name.partition("/")[0] in identity.family.publishers


def _identity(facts: Facts, name: str, identity: Identity, config: ModelConfig | None) -> None:
    said = Origin("model", None, name)
    if identity.quant:
        facts.add("model.quant", identity.quant, said)
    if identity.layers:
        facts.add("model.layers", identity.layers, said)
    if identity.hybrid is not None:
        facts.add("model.hybrid", identity.hybrid, said)
    by_config = _family_of(config)
    family = by_config or identity.family
    if family is None:
        return
    variant = identity.variant if family == identity.family else None
    stated = facts.get("model.architecture") or facts.get("model.type")
    if by_config and stated:
        facts.add("model.family", family.id, stated.origin)
        _recipe(facts, family, variant, config, Origin("recipe", stated.origin.line, stated.origin.quote))
    else:
        facts.add("model.family", family.id, said)
        _recipe(facts, family, variant, config, Origin("recipe", None, name))
    if variant is not None:
        _known_values(facts, variant, identity, config, Origin("recipe", None, name))


def _family_of(config: ModelConfig | None) -> Family | None:
    if config is None:
        return None
    by_class = (family_of_architecture(a) for a in config.architectures)
    by_type = (family_of_type(t) for t in config.model_types)
    return next((f for f in (*by_class, *by_type) if f), None)


def _recipe(facts: Facts, family: Family, variant: Variant | None, config: ModelConfig | None, origin: Origin) -> None:
    """What holds for every member of the family, where nothing more direct said it."""

    def fill(key: str, value: Value | None) -> None:
        if value is not None and value != [] and facts.get(key) is None:
            facts.add(key, value, origin)

    fill("model.layers", list(family.layers))
    fill("model.hybrid", family.hybrid)
    classes = [family.architecture(a) for a in config.architectures] if config else []
    moe = next((c.moe for c in classes if c and c.moe is not None), None)
    fill("model.moe", moe if moe is not None else variant.moe if variant and variant.moe is not None else family.moe)
    bodies = [a.name for a in family.architectures if not a.mtp]
    known = variant.architecture if variant and variant.architecture else bodies[0] if len(bodies) == 1 else None
    fill("model.architecture", [known] if known else None)
    fill("model.type", list(family.model_types) if len(family.model_types) == 1 else None)


def _known_values(
    facts: Facts, variant: Variant, identity: Identity, config: ModelConfig | None, origin: Origin
) -> None:
    """Values of this size's config.json; a config.json that is complete needs none."""
    if config is None or not config.complete:
        for key, value in variant.config.items():
            if facts.get(f"config.{key}") is None:
                facts.add(f"config.{key}", value, origin)
    stored = ["bf16" if q == "none" else q for q in identity.quant]
    sizes = [variant.size_gib[q] for q in stored if q in variant.size_gib]
    if len(sizes) == 1:
        facts.add("model.size_gib", sizes[0], origin)


class _Config:
    """States what a config.json says, each fact with its piece of the text."""

    def __init__(self, config: ModelConfig, text: str, facts: Facts, name_tells_quant: bool) -> None:
        self.config, self.text, self.facts, self.name_tells_quant = config, text, facts, name_tells_quant
        self.spans = key_spans(text)
        self.lines = [i for i, c in enumerate(text) if c == "\n"]

    def state(self) -> None:
        config = self.config
        for path, key, value in islice(self._fields(), _MAX_FIELDS):
            if self.facts.get(key) is None:
                self.facts.add(key, value, self._origin(path))
        self._say("model.architecture", config.architectures, "architectures")
        self._say("model.type", config.model_types, "model_type")
        if config.layers is not None:
            self._say("model.layers", mixers(config.layers), config.layers_from)
            self._say("model.hybrid", config.hybrid, config.layers_from)
        experts = next((f for f in _EXPERT_FIELDS if self._path(f) in self.spans), "architectures")
        self._say("model.moe", config.moe, experts)
        self._say("model.dtype", config.dtype, "dtype" if self._path("dtype") in self.spans else "torch_dtype")
        if config.quant:
            method = next((p for p in self.spans if p.endswith(("quant_method", "quant_algo"))), "quantization_config")
            self.facts.add("model.quant", config.quant, self._origin(method))
        elif config.complete and not self.name_tells_quant and "quantization_config" not in self.text:
            self._say("model.quant", ["none"], "model_type")

    def _fields(self) -> Iterator[tuple[str, str, Value]]:
        """``(path in the document, fact key, value)``: the language part first, then the rest of the document."""
        config, nest = self.config, self.config.text_path
        for name, value in config.text.items():
            for path, scalar in flatten(value, str(name)):
                yield (f"{nest}.{path}" if nest else path), f"config.{path}", scalar
        for name, value in config.document.items() if nest else ():
            if name != nest.partition(".")[0]:
                for path, scalar in flatten(value, str(name)):
                    yield path, f"config.{path}", scalar

    def _path(self, name: str) -> str:
        """Where a field stands: in the language part, or at the top."""
        inner = f"{self.config.text_path}.{name}"
        return inner if inner in self.spans else name

    def _say(self, key: str, value: Value | None, field: str) -> None:
        if value is not None and value != []:
            self.facts.add(key, value, self._origin(self._path(field)))

    def _origin(self, path: str) -> Origin:
        span = self.spans.get(path)
        if span is None:
            bare = f'"{path.rpartition(".")[2]}"'
            at = self.text.find(bare)
            span = (at, at + len(bare)) if at >= 0 else None
        if span is None:
            return Origin("config")
        return Origin("config", bisect_right(self.lines, span[0]) + 1, self.text[span[0] : span[1]])
