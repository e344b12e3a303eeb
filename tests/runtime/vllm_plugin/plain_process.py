"""Answer with unrouted models in a process of its own, and write down all of it: plain_process.py OUT.json MODEL…"""

from __future__ import annotations

import gc
import json
import struct
import sys
from pathlib import Path
from typing import Any


def what(model: str) -> dict[str, Any]:
    """Tokens and log-probabilities (float32, as bytes), caches, layers and backends."""
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory
    from vllm_harness import prompts_of

    llm = LLM(model, dtype="float32", max_model_len=512, enforce_eager=True, kv_cache_memory_bytes=1 << 26, seed=0)
    params = SamplingParams(max_tokens=32, temperature=0, ignore_eos=True, logprobs=5)
    given = [{"prompt_token_ids": p} for p in prompts_of((5, 64, 129, 200, 300))]
    answers = [each.outputs[0] for _ in range(2) for each in llm.generate(given, params, use_tqdm=False)]
    config = llm.llm_engine.vllm_config
    caches = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_config
    layers = config.compilation_config.static_forward_context
    found = {
        "tokens": [list(a.token_ids) for a in answers],
        "logprobs": [
            [(t, struct.pack("<f", p.logprob).hex(), p.rank) for t, p in sorted(row.items())]
            for a in answers
            for row in a.logprobs
        ],
        "caches": repr(caches),
        "cache_config": repr(config.cache_config),
        "layers": {
            name: [f"{type(x).__module__}.{type(x).__qualname__}" for x in (layer, layer.impl)]
            + [f"{layer.attn_backend.__module__}.{layer.attn_backend.__qualname__}", layer.attn_backend.get_name()]
            for name, layer in layers.items()
        },
        "model": config.model_config.architecture,
        "hybrid": config.model_config.is_hybrid,
    }
    del llm
    gc.collect()
    cleanup_dist_env_and_memory()
    return found


def main() -> None:
    out, *models = sys.argv[1:]
    found = {Path(model).name: what(model) for model in models}
    mine = sorted(name for name in sys.modules if name.startswith("hybridctl.runtime.vllm_plugin."))
    Path(out).write_text(json.dumps({"models": found, "plugin": mine}), encoding="utf-8")


if __name__ == "__main__":
    main()
