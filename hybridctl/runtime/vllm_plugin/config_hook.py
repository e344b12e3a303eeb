"""What vLLM asks about a routed architecture before it builds anything: here configurations are refused, one line each."""

from __future__ import annotations

from typing import Any

from vllm.model_executor.models.config import MODELS_CONFIG_MAP, VerifyAndUpdateConfig

from hybridctl.runtime.vllm_plugin.plugin import PREFIX
from hybridctl.runtime.vllm_plugin.routing import make_dispatcher, refuse

HYBRID = "hybrid_attention"


class RoutedModelConfig(VerifyAndUpdateConfig):
    """Hooks for every ``HybridCtl…`` architecture; the base architecture's own hooks run first."""

    @staticmethod
    def verify_and_update_model_config(model_config: Any) -> None:
        base = _base(model_config)
        if base is not None:
            base.verify_and_update_model_config(model_config)
        # vLLM gives states to a model only if its layer_types name something other than full attention.
        kinds = getattr(model_config.hf_config, "layer_types", None)
        if kinds and all(kind in ("attention", "full_attention") for kind in kinds):
            model_config.hf_config.layer_types = [HYBRID] * len(kinds)

    @classmethod
    def verify_and_update_config(cls, vllm_config: Any) -> None:
        base = _base(vllm_config.model_config)
        if base is not None:
            base.verify_and_update_config(vllm_config)
        refuse(vllm_config, make_dispatcher(vllm_config))


def _base(model_config: Any) -> Any:
    return MODELS_CONFIG_MAP.get(model_config.architecture.removeprefix(PREFIX))
