"""The one place that touches vLLM: a general plugin that serves routed checkpoints (architectures ``HybridCtl…``).

Nothing is replaced in vLLM. A routed model is the installed class of the base architecture with its Attention layers turned into
:class:`~hybridctl.runtime.vllm_plugin.layers.RoutedAttention`; other models of the same process are left exactly as they are.
"""

import os


def keep_kv() -> bool:
    """Whether K/V pages are kept by vLLM's own rules (``serve --keep-kv``)."""
    return os.environ.get("HYBRIDCTL_KEEP_KV") == "1"
