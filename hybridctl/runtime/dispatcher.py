"""Decides which kernel computes a token, for every layer and KV group of one rank. Pure planning, from lengths alone.

A decision depends on the token's own position (or, where the configuration says so, on the prompt's length or the longest row), on
the layer, on the KV group and, inside an entropy range, on the score of the position. Under ``route_by: position`` and
``batch_policy: per_row`` neither the other rows nor how a prompt is cut into chunks can change it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hybridctl.errors import UsageError
from hybridctl.runtime.compute_unit import ENTROPY, FLASH, LINEAR
from hybridctl.runtime.entropy import FIRST_SCORED
from hybridctl.runtime.hybrid_config import HybridConfig
from hybridctl.runtime.partition import Partition, Range
from hybridctl.runtime.step_plan import PlanError, Rows, StepPlan, read_rows, route_by_position, route_by_value

# Flags that a routing by the prompt's length or by the longest row needs: what each turns off, and why that can't be.
NEEDED_BY_VALUE = {
    "--no-enable-chunked-prefill": ("chunked prefill", "a chunk does not tell the length"),
    "--no-enable-prefix-caching": ("prefix caching", "what is cached took another's kernel"),
}
# What a runtime must be able to do for a configuration, beyond one route that goes from flash to linear by position.
FEATURES = {
    "band": "positions decided by entropy (fallback_policy entropy_based, or entropy in a condition)",
    "heads": "linear and flash KV groups in one layer (linear_head_ratio between 0 and 1, linear_heads, head in a condition)",
    "layers": "layers with different routes (layer_types, linear_heads by layer, layer in a condition)",
    "gate": "gated heads (linear_head_gate)",
    "prompt_length": "route_by prompt_length",
    "uniform": "batch_policy uniform",
    "return": "flash after linear (a flash unit above a linear one)",
}


def share(num_kv_heads: int, rank: int, ranks: int) -> tuple[int, ...]:
    """The KV groups that a tensor-parallel rank holds: an even part, or one that several ranks repeat.

    Raises:
        UsageError: neither number divides the other.
    """
    if num_kv_heads % ranks == 0:
        each = num_kv_heads // ranks
        return tuple(range(rank * each, (rank + 1) * each))
    if ranks % num_kv_heads == 0:
        return (rank // (ranks // num_kv_heads),)
    raise UsageError(
        f"{num_kv_heads} KV groups on {ranks} tensor-parallel ranks; allowed: a size that divides or is a multiple"
    )


class HybridAttentionDispatcher:
    """The routing of one tensor-parallel rank.

    Args:
        config: a checked configuration.
        num_layers: decoder layers.
        num_kv_heads: KV groups over all ranks.
        tp_rank: this rank, from 0.
        tp_size: ranks; the KV groups are shared out evenly, or repeated where there are more ranks than groups.

    Attributes:
        groups: the KV groups (numbered over all ranks) that this rank holds, in order. A *local group* is a place in it.
        routes: the distinct partitions among layers that take part; ``pairs`` counts the (layer, local group) of each.

    Raises:
        UsageError: KV groups that don't divide, or ranks that would hold unequal numbers of linear groups.
    """

    def __init__(
        self, config: HybridConfig, num_layers: int, num_kv_heads: int, tp_rank: int = 0, tp_size: int = 1
    ) -> None:
        if not 0 <= tp_rank < tp_size:
            raise UsageError(f"tensor-parallel rank {tp_rank} of {tp_size} does not exist")
        self.config, self.num_layers, self.num_kv_heads = config, num_layers, num_kv_heads
        self.tp_rank, self.tp_size = tp_rank, tp_size
        self.table = config.table(num_layers, num_kv_heads)
        shares = [share(num_kv_heads, rank, tp_size) for rank in range(tp_size)]
        self._refuse_unequal(shares)
        self.groups = shares[tp_rank]
        self.layers = tuple(sorted(layer for layer in config.layers if layer < num_layers))
        distinct: dict[Partition, int] = {}
        self._route: dict[int, tuple[int, ...]] = {}
        for layer in self.layers:
            own = (self.table.at(layer, head) for head in self.groups)
            self._route[layer] = tuple(distinct.setdefault(p, len(distinct)) for p in own)
        self.routes = tuple(distinct)
        taken = [route for row in self._route.values() for route in row]
        self.pairs = tuple(taken.count(i) for i in range(len(self.routes)))
        self.rule_by_value = "route_by prompt_length" if config.route_by == "prompt_length" else ""
        if not self.rule_by_value and config.batch_policy == "uniform":
            self.rule_by_value = "batch_policy uniform"
        self.by_value = bool(self.rule_by_value)

    def _refuse_unequal(self, shares: list[tuple[int, ...]]) -> None:
        for layer in sorted(self.config.layers):
            own = [[self.table.at(layer, head) for head in share] for share in shares]
            linear = [sum(p.state_start is not None for p in each) for each in own]
            freed = [sum(p.pages_end is not None for p in each) for each in own]
            if len(set(linear)) > 1 or len(set(freed)) > 1:
                counts = linear if len(set(linear)) > 1 else freed
                raise UsageError(
                    f"layer {layer}: the {len(shares)} tensor-parallel ranks would hold {counts} linear KV groups; allowed: the "
                    "same number on each (another linear_head_ratio, linear_heads or tensor-parallel size)"
                )

    def select_kernel(
        self, position: int, layer: int, head: int, entropy: float | None = None, length: int | None = None
    ) -> str:
        """The kernel, ``flash`` or ``linear``, that computes one token in one layer and KV group.

        Args:
            position: tokens before this one.
            head: the KV group, numbered over all ranks.
            entropy: score of the position; needed where :meth:`rule` says ``entropy``.
            length: what routes in place of the position: the prompt's length under ``route_by: prompt_length``; under
                ``batch_policy: uniform`` the longest prompt of the step, or the last position of its longest row.
        """
        rule = self.rule(position, layer, head, length)
        if rule.kernel != ENTROPY:
            return rule.kernel
        if entropy is None:
            raise PlanError(
                f"layer {layer}, KV group {head}: position {position} is decided by entropy; give its score"
            )
        return rule.decide(entropy)

    def rule(self, position: int, layer: int, head: int, length: int | None = None) -> Range:
        """The range that decides for a token; its kernel is ``flash``, ``linear`` or ``entropy``. Arguments as select_kernel."""
        if position < 0 or not 0 <= layer < self.num_layers or not 0 <= head < self.num_kv_heads:
            raise PlanError(f"no position {position}, layer {layer}, KV group {head} in this model")
        if not self.by_value:
            return self.table.at(layer, head).at(position)
        if length is None:
            raise PlanError("the length that routes is not given")
        found = self.table.at(layer, head).at(length)
        if found.kernel == ENTROPY and position < FIRST_SCORED:
            return Range(0, FIRST_SCORED, FLASH)
        return found

    def plan_step(self, query_start_loc: Any, seq_lens: Any, prompt_lens: Any = None) -> StepPlan:
        """Plan one engine step from lengths on the CPU (lists, arrays, or tensors there).

        Args:
            query_start_loc: [rows + 1]; where each row's query tokens begin in the flat batch, and the end.
            seq_lens: [rows]; tokens of each row, this step's included.
            prompt_lens: [rows]; needed under ``route_by: prompt_length`` only.

        Raises:
            PlanError: lengths that can't be those of a step.
        """
        rows = read_rows(query_start_loc, seq_lens)
        values: list[int] | None = None
        if self.by_value:
            values = self._values(rows, seq_lens, prompt_lens)
            keep = self.config.batch_policy == "uniform"
            routes = tuple(route_by_value(p, rows, values, keep_state=keep) for p in self.routes)
        else:
            routes = tuple(route_by_position(p, rows) for p in self.routes)
        kernels = {route.whole for route in routes} if rows.runs.tokens and routes else {FLASH}
        whole = kernels.pop() if len(kernels) == 1 else None
        return StepPlan(
            routes, rows.runs.tokens, whole, whole == FLASH and not any(len(r.update) for r in routes), values
        )

    def _values(self, rows: Rows, seq_lens: Any, prompt_lens: Any) -> list[int]:
        """What routes each batch row."""
        if self.config.route_by == "prompt_length":
            if prompt_lens is None or len(prompt_lens) != len(seq_lens):
                raise PlanError("route_by prompt_length needs the prompt length of every row")
            values = [int(v) for v in prompt_lens]
        else:
            values = [int(v) - 1 for v in seq_lens]
        if self.config.batch_policy == "uniform":
            values = [max((values[row] for row in rows.runs.row.tolist()), default=0)] * len(values)
        return values

    def route(self, layer: int, local_group: int) -> int:
        """The place of a layer and local group in ``routes`` and in a plan's routes."""
        if layer not in self._route:
            raise PlanError(f"layer {layer} takes no part in the routing")
        return self._route[layer][local_group]

    def linear_groups(self, layer: int) -> list[int]:
        """The local groups of a layer that may be linear: those that hold a state."""
        return [g for g, route in enumerate(self._route.get(layer, ())) if self.routes[route].state_start is not None]

    def permutation(self, layer: int) -> list[int]:
        """Local groups in the order that puts the linear ones first and equal routes side by side."""
        routes, linear = self._route.get(layer, (0,) * len(self.groups)), set(self.linear_groups(layer))
        return sorted(range(len(self.groups)), key=lambda g: (g not in linear, routes[g], g))

    def state_start(self, layer: int, local_group: int) -> int | None:
        """The position from which the state runs; None where there is none."""
        start = self.routes[self.route(layer, local_group)].state_start
        return 0 if self.by_value and start is not None else start

    def pages_end(self, layer: int, local_group: int) -> int | None:
        """From this position on no K/V is needed, and below it none once the state has absorbed it. None: K/V is always needed."""
        if self.by_value or layer in self.config.gated:
            return None
        return self.routes[self.route(layer, local_group)].pages_end

    def needs(self) -> list[str]:
        """The FEATURES that a runtime must have for this routing."""
        moving = [p for p in self.routes if p.state_start is not None]
        kinds = {tuple(self._route[layer]) for layer in self.layers}
        found = {
            "band": any(ENTROPY in p.kernels for p in moving),
            "heads": any(len(set(kind)) > 1 for kind in kinds),
            "layers": len(kinds) > 1,
            "gate": bool(self.config.gated),
            "prompt_length": self.config.route_by == "prompt_length",
            "uniform": self.config.batch_policy == "uniform",
            "return": any(a.kernel == LINEAR for p in moving for a in p.ranges[:-1]),
        }
        return [name for name in FEATURES if found[name]]

    def unsupported(self, features: Collection[str]) -> list[str]:
        """One line for each thing that the routing needs and a runtime with these ``features`` does not do yet."""
        return [f"not yet: {FEATURES[name]}" for name in self.needs() if name not in features]

    def unreachable(self, max_model_len: int) -> list[str]:
        """A line where no token of a context this long can be linear."""
        starts = [p.state_start for p in self.routes if p.state_start is not None]
        if starts and min(starts) < max_model_len:
            return []
        first = f"the first linear position is {min(starts)}" if starts else "nothing can go linear"
        return [f"no token is ever linear: {first}, the context ends at {max_model_len}"]

    def banner(self) -> list[str]:
        """What is on, for the start of a server: the rule, the ranges of each route, the warnings."""
        rules = {
            (
                "position",
                "per_row",
            ): "by position: each token's own position decides, whatever the prompt's length or the batch",
            (
                "prompt_length",
                "per_row",
            ): "by prompt length: the prompt's length at arrival decides for all tokens of a request",
            (
                "position",
                "uniform",
            ): "by the longest row: it decides for the whole batch, so answers depend on neighbours",
            (
                "prompt_length",
                "uniform",
            ): "by the longest prompt: it decides for the whole batch, so answers depend on neighbours",
        }
        lines = [f"routing {rules[self.config.route_by, self.config.batch_policy]}"]
        for i, route in enumerate(self.routes):
            layers = [layer for layer in self.layers if i in self._route[layer]]
            groups = max(self._route[layer].count(i) for layer in layers)
            lines.append(
                f"{route}: {len(layers)} of {self.num_layers} layers, {groups} of {len(self.groups)} KV groups of this rank"
            )
        return lines + [f"warning: {each}" for each in self.config.warnings]
