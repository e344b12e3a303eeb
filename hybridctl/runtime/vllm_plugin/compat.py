"""Every name of vLLM that the plugin uses, with the arguments that it passes or takes.

A test compares them with the installed vLLM, another reads the plugin's source for names that are not here. When a new vLLM breaks
the plugin, it breaks here first, by name.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from typing import Any

SPEC = "vllm.v1.kv_cache_interface:"
MANAGER = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager"
STATES = "vllm.v1.core.single_type_kv_cache_manager:MambaManager"
CPU = "vllm.v1.attention.backends.cpu_attn:"
ATTENTION = "vllm.model_executor.layers.attention:Attention"
MAMBA = "vllm.model_executor.layers.mamba"

# "module:attribute": the parameters that must be there, in this order; None where it is not called by us.
USED: dict[str, tuple[str, ...] | None] = {
    "vllm:__version__": None,
    "vllm._custom_ops:cpu_attn_reshape_and_cache": ("key", "value", "key_cache", "value_cache", "slot_mapping", "isa"),
    "vllm.distributed:get_tensor_model_parallel_rank": (),
    "vllm.entrypoints.openai.completion.protocol:CompletionRequest": None,
    "vllm.entrypoints.openai.completion.protocol:CompletionResponse": None,
    "vllm.entrypoints.openai.completion.serving:OpenAIServingCompletion.create_completion": (
        *("self", "request", "raw_request"),
    ),
    "vllm.forward_context:get_forward_context": (),
    "vllm.forward_context:ForwardContext": ("no_compile_layers", "attn_metadata"),
    "vllm.logger:init_logger": ("name",),
    "vllm.model_executor.models:ModelRegistry": None,
    "vllm.model_executor.models.registry:_ModelRegistry.register_model": ("self", "model_arch", "model_cls"),
    "vllm.model_executor.models.registry:_ModelRegistry.get_supported_archs": ("self",),
    "vllm.model_executor.models.registry:_LazyRegisteredModel.load_model_cls": ("self",),
    "vllm.model_executor.models.config:MODELS_CONFIG_MAP": None,
    "vllm.model_executor.models.config:VerifyAndUpdateConfig.verify_and_update_config": ("vllm_config",),
    "vllm.model_executor.models.config:VerifyAndUpdateConfig.verify_and_update_model_config": ("model_config",),
    "vllm.model_executor.models.interfaces:HasInnerState": None,
    "vllm.model_executor.models.interfaces:IsHybrid": None,
    "vllm.model_executor.models.interfaces:IsHybrid.get_mamba_state_shape_from_config": ("vllm_config",),
    "vllm.model_executor.models.interfaces:IsHybrid.get_mamba_state_copy_func": (),
    "vllm.v1.attention.backends.registry:MambaAttentionBackendEnum": None,
    "vllm.model_executor.models.utils:extract_layer_index": ("layer_name",),
    "vllm.model_executor.models.utils:WeightsMapper": ("orig_to_new_regex", "orig_to_new_prefix", "orig_to_new_suffix"),
    "vllm.model_executor.models.utils:WeightsMapper.apply_list": ("self", "values"),
    ATTENTION: (
        *("num_heads", "head_size", "scale", "num_kv_heads", "cache_config", "quant_config", "prefix", "attn_backend"),
    ),
    f"{ATTENTION}.get_kv_cache_spec": ("self", "vllm_config"),
    f"{ATTENTION}.get_attn_backend": ("self",),
    f"{MAMBA}.abstract:MambaBase": None,
    f"{MAMBA}.abstract:MambaBase.get_state_shape": ("self",),
    f"{MAMBA}.abstract:MambaBase.get_state_dtype": ("self",),
    f"{MAMBA}.abstract:MambaBase.get_kv_cache_spec": ("self", "vllm_config"),
    f"{MAMBA}.abstract:MambaBase.get_attn_backend": ("self",),
    f"{MAMBA}.abstract:MambaBase.mamba_type": None,
    f"{MAMBA}.abstract:MambaBase.bind_kv_cache": ("self", "kv_cache"),
    f"{MAMBA}.mamba_utils:get_temporal_copy_spec": ("state", "block_ids", "cur_block_idx", "num_accepted_tokens"),
    "vllm.utils.math_utils:cdiv": ("a", "b"),
    "vllm.v1.attention.backend:AttentionType.DECODER": None,
    "vllm.v1.attention.backend:AttentionBackend.get_name": (),
    "vllm.v1.attention.backend:AttentionBackend.customize_spec": ("spec",),
    "vllm.v1.attention.backend:AttentionMetadataBuilder": ("kv_cache_spec", "layer_names", "vllm_config", "device"),
    "vllm.v1.attention.backend:AttentionMetadataBuilder.build": (
        *("self", "common_prefix_len", "common_attn_metadata", "fast_build"),
    ),
    "vllm.v1.attention.backend:CommonAttentionMetadata": (
        *("query_start_loc", "query_start_loc_cpu", "seq_lens", "num_reqs", "num_actual_tokens", "max_query_len"),
        *("max_seq_len", "block_table_tensor", "slot_mapping", "seq_lens_cpu_upper_bound"),
    ),
    "vllm.v1.attention.backends.registry:MambaAttentionBackendEnum.LINEAR": None,
    "vllm.v1.attention.backends.linear_attn:LinearAttentionBackend.get_builder_cls": (),
    "vllm.v1.attention.backends.utils:mamba_get_block_table_tensor": (
        *("block_table", "seq_lens", "kv_cache_spec", "mamba_cache_mode"),
    ),
    f"{CPU}CPUAttentionBackend": None,
    f"{CPU}CPUAttentionBackend.get_impl_cls": (),
    f"{CPU}CPUAttentionBackend.get_builder_cls": (),
    f"{CPU}CPUAttentionMetadataBuilder": ("kv_cache_spec", "layer_names", "vllm_config", "device"),
    f"{CPU}CPUAttentionMetadataBuilder.build": ("self", "common_prefix_len", "common_attn_metadata", "fast_build"),
    f"{CPU}CPUAttentionMetadata": ("block_table",),
    f"{CPU}CPUAttentionBackendImpl.do_kv_cache_update": ("self", "layer", "key", "value", "kv_cache", "slot_mapping"),
    f"{CPU}CPUAttentionBackendImpl.forward": (
        *("self", "layer", "query", "key", "value", "kv_cache", "attn_metadata", "output", "output_scale"),
        "output_block_scale",
    ),
    "vllm.v1.core.kv_cache_utils:get_kv_cache_groups": ("vllm_config", "kv_cache_spec"),
    "vllm.v1.core.kv_cache_utils:resolve_block_hashes": ("block_hashes", "hash_block_size", "block_size"),
    "vllm.v1.core.block_pool:BlockPool.get_cached_block": ("self", "block_hash", "kv_cache_group_ids"),
    MANAGER: ("kv_cache_spec", "block_pool"),
    f"{MANAGER}.get_num_blocks_to_allocate": ("self", "request_id", "num_tokens"),
    f"{MANAGER}.allocate_new_blocks": ("self", "request_id", "num_tokens", "num_tokens_main_model"),
    f"{MANAGER}.get_num_skipped_tokens": ("self", "num_computed_tokens"),
    f"{MANAGER}.remove_skipped_blocks": ("self", "request_id", "processed_computed_tokens"),
    f"{MANAGER}.find_longest_cache_hit": (
        *("block_hashes", "max_length", "kv_cache_group_ids", "block_pool", "kv_cache_spec", "drop_eagle_block"),
        *("alignment_tokens", "dcp_world_size", "pcp_world_size"),
    ),
    STATES: ("kv_cache_spec", "block_pool"),
    f"{STATES}.get_num_blocks_to_allocate": ("self", "request_id", "num_tokens"),
    f"{STATES}.allocate_new_blocks": ("self", "request_id", "num_tokens", "num_tokens_main_model"),
    f"{STATES}.get_num_skipped_tokens": ("self", "num_computed_tokens"),
    f"{STATES}.remove_skipped_blocks": ("self", "request_id", "processed_computed_tokens"),
    f"{STATES}.cache_blocks": ("self", "request", "num_tokens"),
    f"{STATES}.find_longest_cache_hit": (
        *("block_hashes", "max_length", "kv_cache_group_ids", "block_pool", "kv_cache_spec", "drop_eagle_block"),
        *("alignment_tokens", "dcp_world_size", "pcp_world_size"),
    ),
    f"{SPEC}MambaSpec": ("block_size", "shapes", "dtypes", "page_size_padded", "mamba_cache_mode"),
    f"{SPEC}AttentionSpec": ("num_kv_heads", "head_size", "dtype"),
    f"{SPEC}AttentionSpec.page_size_bytes": None,
    f"{SPEC}KVCacheSpec.merge": ("specs",),
    f"{SPEC}KVCacheSpec.is_uniform_with_collection": ("self", "kv_cache_specs"),
    f"{SPEC}KVCacheSpec.max_memory_usage_bytes": ("self", "vllm_config"),
    "vllm.v1.kv_cache_spec_registry:KVCacheSpecRegistry._ensure_registered": (),
    "vllm.v1.kv_cache_spec_registry:KVCacheSpecRegistry.register": (
        *("kvcache_spec_cls", "manager_class", "uniform_type_base_spec"),
    ),
}

# Attributes that are read or set: (class or function, attribute). Of a function, that it sets on something.
FIELDS: tuple[tuple[str, str], ...] = (
    *(
        (ATTENTION, f)
        for f in (
            "layer_name",
            "impl",
            "attn_backend",
            "kv_cache",
            "num_heads",
            "num_kv_heads",
            "head_size",
            "head_size_v",
        )
    ),
    *(
        (ATTENTION, f)
        for f in ("sliding_window", "has_sink", "attn_type", "kv_sharing_target_layer_name", "kv_cache_dtype")
    ),
    (ATTENTION, "quant_config"),
    *((f"{CPU}CPUAttentionBackendImpl", f) for f in ("sinks", "alibi_slopes", "logits_soft_cap", "scale")),
    ("vllm.model_executor.layers.linear:LinearBase", "quant_method"),
    (f"{SPEC}KVCacheGroupSpec", "kv_cache_spec"),
    *((f"{CPU}CPUAttentionMetadataBuilder", f) for f in ("block_size",)),
    (f"{CPU}CPUAttentionMetadataBuilder._set_isa_to_layers", "isa"),
    *((MANAGER, f) for f in ("req_to_blocks", "_null_block", "block_size", "kv_cache_spec", "block_pool")),
    (STATES, "mamba_cache_mode"),
    ("vllm.model_executor.models.qwen3:Qwen3ForCausalLM", "packed_modules_mapping"),
    ("vllm.model_executor.models.nemotron_h:NemotronHForCausalLM", "hf_to_vllm_mapper"),
    ("vllm.model_executor.models.interfaces:HasInnerState", "has_inner_state"),
    ("vllm.model_executor.models.interfaces:IsHybrid", "is_hybrid"),
    *(("vllm.v1.core.block_pool:BlockPool", f) for f in ("null_block", "hash_block_size")),
    ("vllm.model_executor.models.registry:_ModelRegistry", "models"),
    ("vllm.entrypoints.openai.completion.protocol:CompletionRequest", "n"),
    ("vllm.entrypoints.openai.completion.protocol:CompletionResponse", "choices"),
    ("vllm.entrypoints.openai.completion.protocol:CompletionResponseChoice", "text"),
    ("vllm.entrypoints.generate.api_router:init_generate_state", "openai_serving_completion"),
    *(("vllm.config:VllmConfig", f) for f in ("speculative_config", "kv_transfer_config", "compilation_config")),
    *(("vllm.config:VllmConfig", f) for f in ("model_config", "cache_config", "parallel_config")),
    *(("vllm.config:VllmConfig", f) for f in ("scheduler_config", "lora_config", "load_config")),
    *(("vllm.config:SchedulerConfig", f) for f in ("max_num_seqs", "enable_chunked_prefill")),
    ("vllm.config:LoadConfig", "load_format"),
    ("vllm.config:CacheConfig", "num_gpu_blocks"),
    *(("vllm.config:CompilationConfig", f) for f in ("static_forward_context",)),
    *(
        ("vllm.config:CacheConfig", f)
        for f in ("cache_dtype", "mamba_cache_mode", "kv_sharing_fast_prefill", "block_size", "enable_prefix_caching")
    ),
    *(
        ("vllm.config:ParallelConfig", f)
        for f in ("tensor_parallel_size", "pipeline_parallel_size", "rank", "enable_dbo")
    ),
    *(
        ("vllm.config:ParallelConfig", f)
        for f in ("decode_context_parallel_size", "prefill_context_parallel_size", "use_ubatching")
    ),
    *(
        ("vllm.config:ModelConfig", f)
        for f in ("hf_config", "hf_text_config", "max_model_len", "model", "architecture")
    ),
    *(
        ("vllm.config:ModelConfig", f)
        for f in ("get_head_size", "get_total_num_kv_heads", "get_num_kv_heads", "is_hybrid")
    ),
)


def resolve(name: str) -> Any:
    """The object called ``module:attribute.attribute``. Raises ImportError or AttributeError."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def has(owner: Any, field: str) -> bool:
    """Whether a class has an attribute, declares one, or sets it on its instances; or a function sets it on something."""
    if hasattr(owner, field) or any(field in getattr(owner, f, {}) for f in ("__dataclass_fields__", "model_fields")):
        return True
    for part in owner.__mro__[:-1] if isinstance(owner, type) else (owner,):
        if part.__module__.partition(".")[0] != "vllm":
            continue
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(part)))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == field:
                return True
    return False


def problems() -> list[str]:
    """One line for each name that the installed vLLM lacks, or whose arguments have changed. Empty: the contract holds."""
    lines = []
    for name, wanted in USED.items():
        try:
            found = resolve(name)
        except (ImportError, AttributeError) as missing:
            lines.append(f"{name}: missing ({missing})")
            continue
        if wanted is not None:
            have = list(inspect.signature(found).parameters)
            places = [have.index(p) if p in have else -1 for p in wanted]
            if -1 in places:
                lines.append(f"{name}: no parameter {wanted[places.index(-1)]!r} among {have}")
            elif places != sorted(places):
                lines.append(f"{name}: parameters {have} are not in the order {list(wanted)}")
    for name, field in FIELDS:
        try:
            owner = resolve(name)
        except (ImportError, AttributeError) as missing:
            lines.append(f"{name}: missing ({missing})")
            continue
        if not has(owner, field):
            lines.append(f"{name}: no field {field!r}")
    return lines
