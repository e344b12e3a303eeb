"""Entry point ``hybridctl`` of the group ``vllm.general_plugins``. vLLM calls :func:`register` in each of its processes.

Environment (set by ``hybridctl serve``): ``HYBRIDCTL_PLUGIN=1`` switches it on, without it nothing happens. ``HYBRIDCTL_RUN_DIR``:
where each process writes its proof. ``HYBRIDCTL_KEEP_KV=1``: keep to vLLM's own rules for K/V pages. ``HYBRIDCTL_NAMES``: the
overlay whose rules for names of tensors are applied.
"""

from __future__ import annotations

import os

from hybridctl.runtime.vllm_plugin.window import check_version

SWITCH = "HYBRIDCTL_PLUGIN"
PREFIX = "HybridCtl"
SUFFIX = "ForCausalLM"
MODELS = "hybridctl.runtime.vllm_plugin.models"


def register() -> None:
    """Make the routed architectures known: one ``HybridCtl…`` name for every causal model that the installed vLLM has.

    Also legacy names of classes that it has (``architecture_aliases.toml``), and the stand-in of a class whose tensors are renamed.
    Idempotent. Imports no model, no kernel and no CUDA. An exception here ends the vLLM process, on purpose.
    """
    if os.environ.get(SWITCH) != "1":
        return
    import vllm

    check_version(vllm.__version__)
    from vllm.model_executor.models import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from hybridctl.architectures import alias_targets
    from hybridctl.runtime.vllm_plugin import names, proof
    from hybridctl.runtime.vllm_plugin.config_hook import RoutedModelConfig

    known = set(ModelRegistry.get_supported_archs())
    for base in known:
        if base.endswith(SUFFIX) and not base.startswith(PREFIX) and PREFIX + base not in known:
            ModelRegistry.register_model(PREFIX + base, f"{MODELS}:{PREFIX}{base}")
            MODELS_CONFIG_MAP[PREFIX + base] = RoutedModelConfig
    aliases = alias_targets(known, vllm.__version__)
    for old, new in aliases.items():
        ModelRegistry.models[old] = ModelRegistry.models[new]
        if new in MODELS_CONFIG_MAP:
            MODELS_CONFIG_MAP[old] = MODELS_CONFIG_MAP[new]
    names.register(ModelRegistry, MODELS)
    proof.write_registered(vllm.__version__, aliases, sorted(names.ORIGINAL))
