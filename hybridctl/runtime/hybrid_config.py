"""``hybrid_config``: how a checkpoint says which kernel computes each token. Every form compiles to compute units.

Fields (all optional but what the strategy needs):

* ``routing_strategy``: ``sequence_length`` (needs ``thresholds``), ``layer_types`` (needs ``layer_types``) or ``compute_units``
  (needs ``compute_units``); without it, the one whose field is there.
* ``thresholds`` {``flash``: T_f, ``linear``: T_l or null}: below T_f flash computes, from T_l on linear does; null: no T_l.
* ``fallback_policy``: what computes between them: ``entropy_based`` (default), ``flash`` or ``linear``.
* ``entropy_threshold`` (0.8): above it flash computes, else linear.
* ``linear_head_ratio`` (1.0) or ``linear_heads`` (KV groups, one list or one a layer): the groups that may be linear; the others
  are flash.
* ``linear_head_gate``: true or a list of layers: heads mix both kernels where they are routed linear.
* ``linear_feature_size``, ``linear_value_size``: of the state, where they differ from the head size.
* ``layer_types``: one a layer: ``hybrid_attention`` (routed by the thresholds), ``linear_attention`` (linear at every position) or
  ``full_attention`` (takes no part). A layer that the model does not compute with attention takes no part either.
* ``route_by``: ``position`` (default: a token's own position is compared) or ``prompt_length`` (the request's prompt is).
* ``batch_policy``: ``per_row`` (default) or ``uniform`` (the longest row of a batch decides for all its rows).
* ``compute_units`` [{``name``, ``kernel``, ``layout``, ``condition``}], ``default_unit``: a unit or kernel for what none covers.

In conditions ``seqlen`` is what ``route_by`` names: the token's position, or the length of the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hybridctl.errors import UsageError
from hybridctl.runtime._fields import ConfigError, Fields
from hybridctl.runtime.compute_unit import FLASH, KERNELS, LAYOUT_OF, LAYOUTS, LINEAR, ComputeUnit, unit
from hybridctl.runtime.condition import Comparison, Condition, Constant, Every, Member, Some, names
from hybridctl.runtime.condition_parser import parse_condition
from hybridctl.runtime.entropy import LANDMARKS
from hybridctl.runtime.partition import Table, build_table

__all__ = ["ConfigError", "HybridConfig", "ModelShape", "parse"]

STRATEGIES = ("sequence_length", "layer_types", "compute_units")
POLICIES = ("entropy_based", "flash", "linear")
LAYER_TYPES = {
    "hybrid_attention": "hybrid",
    "hybrid": "hybrid",
    "linear_attention": LINEAR,
    "linear": LINEAR,
    "full_attention": FLASH,
    "attention": FLASH,
    "flash": FLASH,
}
FIELDS = (
    *("routing_strategy", "thresholds", "fallback_policy", "entropy_threshold", "linear_head_ratio", "linear_heads"),
    *("linear_head_gate", "linear_feature_size", "linear_value_size", "layer_types", "route_by", "batch_policy"),
    *("default_unit", "compute_units"),
)
MAX_THRESHOLD = 2**31 - 1
MAX_UNITS = 64


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the routing must know of a model.

    Attributes:
        num_layers: decoder layers.
        num_kv_heads: KV groups of a layer, over all ranks.
        head_size: of a key, where known.
        routable: layers whose attention can be routed; None: all.
    """

    num_layers: int
    num_kv_heads: int
    head_size: int | None = None
    routable: frozenset[int] | None = None


@dataclass(frozen=True)
class HybridConfig:
    """A routing that has been checked against a model.

    Attributes:
        strategy: the form that it was written in.
        units: the routing itself; the first whose condition holds computes.
        default: the kernel for what no unit covers, if given.
        layers: layers that take part.
        gated: layers whose heads mix both kernels by a gate.
        feature_size: rows of the state of one KV group, None for the head size; ``value_size`` its columns.
        warnings: one line each; for the banner.
    """

    strategy: str
    units: tuple[ComputeUnit, ...]
    layers: frozenset[int]
    default: str | None = None
    route_by: str = "position"
    batch_policy: str = "per_row"
    gated: frozenset[int] = frozenset()
    feature_size: int | None = None
    value_size: int | None = None
    warnings: tuple[str, ...] = ()

    def table(self, num_layers: int, num_kv_heads: int) -> Table:
        """The partition of values for every layer and KV group."""
        return build_table(self.units, num_layers, num_kv_heads, self.default, self.layers)


def parse(document: object, model_shape: ModelShape) -> HybridConfig:
    """Check a ``hybrid_config`` block and compile it.

    Raises:
        ConfigError: the first thing wrong, with the field's path and what is allowed.
    """
    fields = Fields(document, "hybrid_config", FIELDS)
    given = [
        s for s, key in zip(STRATEGIES, ("thresholds", "layer_types", "compute_units"), strict=True) if key in fields
    ]
    strategy = fields.choice("routing_strategy", STRATEGIES, given[-1] if given else None)
    layers, layer_units, typed = _layers(fields, model_shape, strategy)
    route_by = fields.choice("route_by", ("position", "prompt_length"), "position")
    warnings: list[str] = []
    default = None
    if strategy == "compute_units":
        for key in ("thresholds", "fallback_policy", "entropy_threshold"):
            fields.refuse(key, "goes with routing_strategy sequence_length or layer_types; here the conditions say it")
        units, default = _units(fields, route_by)
    else:
        for key in ("compute_units", "default_unit"):
            fields.refuse(key, f"goes with routing_strategy compute_units, not {strategy}")
        needed = strategy == "sequence_length" or "hybrid" in typed
        units = _thresholds(fields, warnings) if needed or "thresholds" in fields else []
        if not needed and units:
            warnings.append("thresholds have no effect: no layer is hybrid_attention")
    units = [*layer_units, *_head_units(fields, model_shape), *units]
    config = HybridConfig(
        strategy=strategy,
        units=tuple(units),
        layers=layers,
        default=default,
        route_by=route_by,
        batch_policy=fields.choice("batch_policy", ("per_row", "uniform"), "per_row"),
        gated=_gate(fields, model_shape, layers),
        feature_size=_size(fields, "linear_feature_size", None),
        value_size=_size(fields, "linear_value_size", model_shape.head_size),
    )
    return _checked(config, model_shape, warnings)


def _checked(config: HybridConfig, shape: ModelShape, warnings: list[str]) -> HybridConfig:
    try:
        table = config.table(shape.num_layers, shape.num_kv_heads)
    except UsageError as problem:
        key = "compute_units" if config.strategy == "compute_units" else "thresholds"
        raise ConfigError(f"hybrid_config.{key}", str(problem)) from None
    ends = [p for p in table.partitions if p.state_start is not None]
    if not ends:
        warnings.append("nothing can go linear: every layer and KV group is flash at every position")
    if any(p.pages_end is None for p in ends):
        warnings.append("some linear groups take flash for ever: their K/V is never freed")
    if config.gated:
        warnings.append("gated heads read K/V for ever: it is never freed in gated layers")
    return HybridConfig(**{**vars(config), "warnings": (*warnings, *table.warnings)})


def _layers(fields: Fields, shape: ModelShape, strategy: str) -> tuple[frozenset[int], list[ComputeUnit], set[str]]:
    """Layers that take part, units that fix the others and the linear ones, and the types that were named."""
    every = frozenset(range(shape.num_layers))
    routable = every if shape.routable is None else every & shape.routable
    if "layer_types" not in fields:
        if strategy == "layer_types":
            fields.fail("layer_types", f"missing; allowed: a list of {shape.num_layers} of {', '.join(LAYER_TYPES)}")
        return routable, _fixed("layers without routable attention", FLASH, every - routable), set()
    entries = fields.items("layer_types", shape.num_layers, shape.num_layers)
    kinds = [LAYER_TYPES[fields.one_of(f"layer_types[{i}]", e, tuple(LAYER_TYPES))] for i, e in enumerate(entries)]
    for layer, kind in enumerate(kinds):
        if kind != FLASH and layer not in routable:
            fields.fail(f"layer_types[{layer}]", "the attention of this layer can't be routed; allowed: full_attention")
    flash = frozenset(i for i, k in enumerate(kinds) if k == FLASH)
    linear = frozenset(i for i, k in enumerate(kinds) if k == LINEAR)
    units = _fixed("full-attention layers", FLASH, flash) + _fixed("linear-attention layers", LINEAR, linear)
    return every - flash, units, set(kinds)


def _fixed(name: str, kernel: str, layers: frozenset[int]) -> list[ComputeUnit]:
    return [unit(name, kernel, Member("layer", tuple(sorted(layers))))] if layers else []


def _thresholds(fields: Fields, warnings: list[str]) -> list[ComputeUnit]:
    if "thresholds" not in fields:
        fields.fail("thresholds", 'missing; allowed: {"flash": T_f, "linear": T_l or null}')
    inner = fields.table("thresholds", ("flash", "linear"))
    flash = inner.integer("flash", 0, MAX_THRESHOLD)
    if "linear" not in inner:
        inner.fail("linear", f"missing; allowed: {flash} to {MAX_THRESHOLD}, or null for none")
    linear = None if inner.get("linear") is None else inner.integer("linear", flash, MAX_THRESHOLD)
    policy = fields.choice("fallback_policy", POLICIES, "entropy_based")
    threshold = fields.number("entropy_threshold", 0.0, 1.0, 0.8)
    band = linear is None or flash < linear
    if "entropy_threshold" in fields and not (band and policy == "entropy_based"):
        warnings.append("entropy_threshold has no effect: no position is decided by entropy")
    if band and policy == "entropy_based" and flash < LANDMARKS:
        inner.fail("flash", f"{flash} with fallback_policy entropy_based; allowed: {LANDMARKS} to {MAX_THRESHOLD}")
    if linear is None and policy == "entropy_based":
        warnings.append("thresholds.linear is null: entropy decides for ever")
    units = [unit("below thresholds.flash", FLASH, Comparison("seqlen", "<", flash))] if flash else []
    if linear is not None:
        units.append(unit("from thresholds.linear", LINEAR, Comparison("seqlen", ">=", linear)))
    if band and policy == "entropy_based":
        units.append(unit("high entropy", FLASH, Comparison("entropy", ">", threshold)))
    if band:
        units.append(unit("between the thresholds", FLASH if policy == "flash" else LINEAR, Constant(True)))
    return units


def spread_heads(ratio: float, heads: int) -> frozenset[int]:
    """KV groups that may be linear at a ratio: h where ⌊(h+1)·r⌋ > ⌊h·r⌋, so that they are spread evenly."""
    exact = Fraction(ratio).limit_denominator(10**6)  # 0.29 × 100 is 29, not 28.999…
    return frozenset(h for h in range(heads) if (h + 1) * exact // 1 > h * exact // 1)


def _head_units(fields: Fields, shape: ModelShape) -> list[ComputeUnit]:
    heads = frozenset(range(shape.num_kv_heads))
    if "linear_heads" not in fields:
        flash = heads - spread_heads(fields.number("linear_head_ratio", 0.0, 1.0, 1.0), shape.num_kv_heads)
        return [unit("flash heads", FLASH, Member("head", tuple(sorted(flash))))] if flash else []
    fields.refuse("linear_head_ratio", "contradicts linear_heads; allowed: one of the two")
    entries = fields.items("linear_heads", 0, max(shape.num_kv_heads, shape.num_layers))
    if not any(isinstance(e, list) for e in entries):
        flash = heads - fields.indices("linear_heads", shape.num_kv_heads, "KV group")
        return [unit("flash heads", FLASH, Member("head", tuple(sorted(flash))))] if flash else []
    fields.items("linear_heads", shape.num_layers, shape.num_layers)
    layers_of: dict[frozenset[int], list[int]] = {}
    for layer, entry in enumerate(entries):
        flash = heads - fields.indices(f"linear_heads[{layer}]", shape.num_kv_heads, "KV group", entry)
        layers_of.setdefault(flash, []).append(layer)
    conditions: list[Condition] = [
        Every((Member("layer", tuple(layers)), Member("head", tuple(sorted(flash)))))
        for flash, layers in layers_of.items()
        if flash
    ]
    if not conditions:
        return []
    return [unit("flash heads", FLASH, conditions[0] if len(conditions) == 1 else Some(tuple(conditions)))]


def _gate(fields: Fields, shape: ModelShape, layers: frozenset[int]) -> frozenset[int]:
    value = fields.get("linear_head_gate")
    if value is None or isinstance(value, bool):
        return layers if value else frozenset()
    gated = fields.indices("linear_head_gate", shape.num_layers, "layer")
    if outside := sorted(gated - layers):
        fields.fail("linear_head_gate", f"layer {outside[0]} takes no part in the routing; allowed: layers that do")
    return gated


def _size(fields: Fields, key: str, most: int | None) -> int | None:
    return None if fields.get(key) is None else fields.integer(key, 1, most or 4096)


def _units(fields: Fields, route_by: str) -> tuple[list[ComputeUnit], str | None]:
    units: list[ComputeUnit] = []
    if "compute_units" not in fields:
        fields.fail("compute_units", f"missing; allowed: a list of 1 to {MAX_UNITS} units")
    for i in range(len(fields.items("compute_units", 1, MAX_UNITS))):
        units.append(_unit(fields.table(f"compute_units[{i}]", ("name", "kernel", "layout", "condition"), i), route_by))
        if units[-1].name in {u.name for u in units[:-1]}:
            fields.fail(f"compute_units[{i}].name", f"{units[-1].name!r} is taken; allowed: a name of its own")
    if fields.get("default_unit") is None:
        return units, None
    kernels = {**KERNELS, **{u.name: u.kernel for u in units}}
    return units, kernels[fields.choice("default_unit", tuple(kernels), None)]


def _unit(fields: Fields, route_by: str) -> ComputeUnit:
    name = fields.text("name")
    kernel = KERNELS[fields.choice("kernel", tuple(KERNELS), None)]
    layout = LAYOUT_OF[kernel]
    if fields.get("layout") is not None:
        layout = LAYOUTS[fields.choice("layout", tuple(LAYOUTS), None)]
    if layout != LAYOUT_OF[kernel]:
        fits = " or ".join(k for k, v in LAYOUTS.items() if v == LAYOUT_OF[kernel])
        fields.fail("layout", f"{fields.get('layout')} does not go with kernel {fields.get('kernel')}; allowed: {fits}")
    try:
        condition = parse_condition(fields.text("condition"))
    except ConfigError:
        raise
    except UsageError as problem:
        fields.fail("condition", str(problem))
    if route_by == "prompt_length" and "position" in names(condition):
        fields.fail(
            "condition", "position does not go with route_by prompt_length; allowed: seqlen, entropy, head, layer"
        )
    return ComputeUnit(name, kernel, layout, condition)
