"""The routed form of a platform's attention backend."""

from __future__ import annotations

from typing import Any

from hybridctl.runtime.vllm_plugin.routing import RefusedError


def routed_backend(base: type[Any]) -> type[Any]:
    """The backend that routes on top of ``base``, the one that vLLM chose for this platform.

    Raises:
        RefusedError: a backend that can't be routed yet.
    """
    name = base.get_name()
    if name == "CPU_ATTN":
        from hybridctl.runtime.vllm_plugin.backend_cpu import RoutedCPUBackend

        return RoutedCPUBackend
    raise RefusedError(f"not yet: routing on top of the attention backend {name}", "serve with --no-hybrid")
