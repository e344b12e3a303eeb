"""Model classes of ours, made from the classes of the installed vLLM when they are asked for.

``models:HybridCtlQwen3ForCausalLM`` is routed: any causal decoder with plain Attention layers works.
``models:HybridCtlRenamedQwen3NextForCausalLM`` stands in for a class whose tensors are renamed while they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.logger import init_logger
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.interfaces import HasInnerState, IsHybrid
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.kv_cache_interface import MambaSpec

from hybridctl.runtime.overlay_min import RENAMED
from hybridctl.runtime.vllm_plugin import keep_kv, names, proof, renaming
from hybridctl.runtime.vllm_plugin.counters import COUNTERS
from hybridctl.runtime.vllm_plugin.layers import RoutedAttention, wrap
from hybridctl.runtime.vllm_plugin.permute import Permutation
from hybridctl.runtime.vllm_plugin.plugin import PREFIX
from hybridctl.runtime.vllm_plugin.routing import RefusedError, make_dispatcher, state_sizes
from hybridctl.runtime.vllm_plugin.state import COPY_FUNCTIONS, STATE_DTYPES, state_bytes, state_shapes
from hybridctl.runtime.vllm_plugin.weights import OperatorWeights, WeightError, listing

logger = init_logger("vllm.hybridctl")
# Hybrids whose full-attention layers can be routed, beside states of their own. Others are refused: nobody has tried them.
BESIDE_STATES = ("Qwen3NextForCausalLM",)


class _Renamed:
    """Hands tensors to its base class under other names, where there are rules for them; stands before it."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        self._loaded_as = (vllm_config.parallel_config.rank, vllm_config.model_config)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Any:
        load = names.loading()
        if load is None:
            return super().load_weights(weights)  # type: ignore[misc]
        rank, model = self._loaded_as
        stream = renaming.Renaming(load.names, self)
        try:
            loaded = super().load_weights(stream.take(weights))  # type: ignore[misc]
        except (KeyError, ValueError, AssertionError, RuntimeError) as error:
            odd = renaming.unexpected(model.model, load.names, self)
            told = f"; not in {type(self).__name__}: {odd}" if odd else ""
            raise WeightError(f"{type(error).__name__}: {error}{told}") from error
        stream.check()
        left = listing(renaming.empty(self, loaded))
        if left:
            logger.warning("[HYBRID] nothing was loaded into %s", left)
        for row in stream.document():
            logger.info("[HYBRID] %d tensors renamed, such as %s → %s", row["tensors"], *row["example"])
        content = {"model": model.model, "architecture": load.architecture, "rules": stream.document(), "empty": left}
        proof.write_names(rank, content)
        return loaded


class _Routed:
    """What a routed class adds to its base class; stands before it."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        rank = get_tensor_model_parallel_rank()
        self._dispatcher = make_dispatcher(vllm_config, rank)
        self._wrapped = wrap(self, vllm_config, self._dispatcher)
        COUNTERS.publish = rank == 0
        if rank == 0:
            for line in self._dispatcher.banner():
                logger.info("[HYBRID] %s", line)
        _prove(vllm_config, self._dispatcher, self._wrapped.layers, rank)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Any:
        order = Permutation(self._wrapped.blocks)
        own = OperatorWeights(
            self,
            self._dispatcher.groups,
            by_name=self._wrapped.groups,
            num_kv_heads=self._dispatcher.num_kv_heads,
            first_head=self._first_head(),
            change=order.take,
        )
        loaded = super().load_weights(own.take(weights))  # type: ignore[misc]
        own.check()
        order.check()
        if own.renamed:
            old, new = next(iter(own.renamed.items()))
            logger.info("[HYBRID] %d tensors renamed, such as %s → %s", len(own.renamed), old, new)
        return loaded if loaded is None else loaded | own.loaded

    def _first_head(self) -> int:
        """The first query head of this rank within its KV group, where several ranks share one group; else 0."""
        made = self._dispatcher
        layer = next(iter(self._wrapped.layers.values()))
        heads = layer.num_heads // layer.num_kv_heads
        sharing = max(made.tp_size // made.num_kv_heads, 1)
        return int(made.tp_rank % sharing * heads)


class _OwnStates:
    """For base classes without states: what vLLM asks about those that routing adds."""

    @classmethod
    def get_mamba_state_dtype_from_config(cls, vllm_config: Any) -> Any:
        return STATE_DTYPES

    @classmethod
    def get_mamba_state_shape_from_config(cls, vllm_config: Any) -> Any:
        return _shapes(vllm_config)

    @classmethod
    def get_mamba_state_copy_func(cls) -> Any:
        return COPY_FUNCTIONS


class _MoreStates:
    """For base classes that have states of another kind: both kinds are told."""

    @classmethod
    def get_mamba_specs_from_config(cls, vllm_config: Any) -> tuple[Any, ...]:
        """One for each kind of state, for their sizes."""
        base: Any = super()
        kinds = (
            (base.get_mamba_state_shape_from_config(vllm_config), base.get_mamba_state_dtype_from_config(vllm_config)),
            (_shapes(vllm_config), STATE_DTYPES),
        )
        return tuple(MambaSpec(shapes=shapes, dtypes=dtypes, block_size=-1) for shapes, dtypes in kinds)

    @classmethod
    def get_mamba_state_copy_funcs(cls, mamba_types: set[Any]) -> Any:
        own = MambaAttentionBackendEnum.LINEAR
        rest = super().get_mamba_state_copy_funcs(mamba_types - {own})  # type: ignore[misc]
        return {**rest, own: COPY_FUNCTIONS} if own in mamba_types else rest


def _shapes(vllm_config: Any) -> Any:
    """Of a state for all KV groups of a rank. States of fewer are padded less: vLLM makes blocks so long that this one fits."""
    model = vllm_config.model_config
    sizes = state_sizes(make_dispatcher(vllm_config), model.get_head_size())
    return state_shapes(model.get_num_kv_heads(vllm_config.parallel_config), *sizes)


def _prove(vllm_config: Any, dispatcher: Any, routed: dict[str, RoutedAttention], rank: int) -> None:
    import vllm

    context = vllm_config.compilation_config.static_forward_context
    layers = {}
    for name, layer in routed.items():
        backend = layer.attn_backend
        sizes = state_sizes(dispatcher, layer.head_size)
        state = layer.linear_state is not None
        layers[name] = {
            "backend": f"{backend.__module__}.{backend.__qualname__}",
            "layer": layer.routing.layer,
            "route": str(dispatcher.routes[layer.routing.route]),
            "groups": [dispatcher.groups[g] for g in layer.routing.groups],
            "state_bytes": state_bytes(layer.num_kv_heads, *sizes) if state else 0,
            "frees_from": layer.routing.pages_end,
        }
    states = {layer.linear_state.layer_name for layer in routed.values() if layer.linear_state is not None}
    proof.write_layers(
        vllm_config.parallel_config.rank,
        {
            "tp_rank": rank,
            "tp_size": vllm_config.parallel_config.tensor_parallel_size,
            "vllm": vllm.__version__,
            "model": vllm_config.model_config.model,
            "architecture": vllm_config.model_config.architecture,
            "keep_kv": keep_kv(),
            "banner": dispatcher.banner(),
            "layers": layers,
            "untouched": sorted(name for name in context if name not in routed and name not in states),
        },
    )


@cache
def routed_class(name: str) -> type[Any]:
    """The routed class of an architecture ``HybridCtl…``.

    Raises:
        RefusedError: a base class that keeps states of its own.
    """
    base_name = name.removeprefix(PREFIX)
    base = _base(base_name)
    text = f"{base_name} with routed attention."
    if base is None or not name.startswith(PREFIX):
        raise AttributeError(f"no routed class for {name}: vLLM has no architecture {base_name}")
    if getattr(base, "is_hybrid", False) or getattr(base, "has_inner_state", False):
        if base_name in BESIDE_STATES and hasattr(base, "get_mamba_state_copy_funcs"):
            return type(name, (_Renamed, _Routed, _MoreStates, base), {"__module__": __name__, "__doc__": text})
        raise RefusedError(
            f"{base_name} is a hybrid already: vLLM serves it as it is", f"put {base_name} back in config.json"
        )
    bases = (_Renamed, _Routed, _OwnStates, base, HasInnerState, IsHybrid)
    return type(name, bases, {"__module__": __name__, "__doc__": text})


def _base(name: str) -> Any:
    """vLLM's own class of an architecture, also where it has a stand-in; None: there is none."""
    known = names.ORIGINAL.get(name) or ModelRegistry.models.get(name)
    return None if known is None else known.load_model_cls()


@cache
def renamed_class(name: str) -> type[Any]:
    """The stand-in ``HybridCtlRenamed…`` of an architecture that is registered as one."""
    base_name = name.removeprefix(RENAMED)
    if base_name not in names.ORIGINAL:
        raise AttributeError(f"{name}: there are no rules for names of {base_name} in this process")
    base = _base(base_name)
    return type(name, (_Renamed, base), {"__module__": __name__, "__doc__": f"{base_name} under other tensor names."})


def __getattr__(name: str) -> Any:
    if name.startswith(RENAMED):
        return renamed_class(name)
    if name.startswith(PREFIX):
        return routed_class(name)
    raise AttributeError(name)
