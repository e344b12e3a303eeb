"""Records what vLLM itself computes for the caches of small models: the truth that ``hybridctl fit`` is tested against.

Run it with an interpreter that has vLLM (the CPU build is enough); it imports nothing of hybridctl:

    python tests/data/fit/record.py short > tests/data/fit/vllm-0.32.0.json
    python tests/data/fit/record.py engine qwen3_next '{"kv_cache_dtype": "fp8"}'
    python tests/data/fit/record.py layers qwen4_exp kimi_linear > tests/data/fit/layers.jsonl

``short`` builds each model on the meta device and calls the functions that the engine calls while it starts (block size for the
backend, specs of the layers, layout, groups, blocks, capacity) with a stated pool; ``engine`` starts a whole engine with that pool
(``kv_cache_memory_bytes``) and reads the same numbers from it, which shows that the short way is the engine's way. ``layers`` only
builds the models, on whatever platform vLLM finds, and lists what holds a cache: some can be built on a GPU's machine alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
# Qwen3.5's module imports torchvision, whose released builds do not fit the CPU build of torch; nothing of it is used here.
STUB = HERE.parent / "torchvision_stub"


def prepare() -> None:
    """Quiet, offline, without plugins; a torchvision that can be imported where there is none."""
    os.environ.update(VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_PLUGINS="none", VLLM_LOGGING_LEVEL="ERROR")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    try:
        import torchvision  # noqa: F401
    except ImportError:
        sys.path.insert(0, str(STUB))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(STUB), os.environ.get("PYTHONPATH", "")])
    import torch
    from transformers import AutoConfig, PreTrainedConfig
    from vllm.triton_utils import triton

    # With AVX512-BF16 vLLM's CPU platform widens most recurrent states to float32 (CpuPlatform.check_and_update_config, 0.30
    # to 0.32), which no GPU does: what is recorded must not depend on the processor that happens to record it.
    torch.cpu._is_avx512_bf16_supported = lambda: False

    # The publisher's config class comes with the checkpoint where transformers has none; vLLM reads plain fields of it.
    with contextlib.suppress(ValueError):
        AutoConfig.register(
            "bailing_hybrid", type("BailingHybridConfig", (PreTrainedConfig,), {"model_type": "bailing_hybrid"})
        )
    if not hasattr(triton, "set_allocator"):  # vLLM's stand-in for Triton on the CPU lacks it
        triton.set_allocator = lambda *_: None


def folder_of(family: str) -> str:
    """A folder with the config.json of that family and nothing else."""
    folder = tempfile.mkdtemp()
    config = json.loads((HERE / "families.json").read_text())[family]
    if (
        family == "qwen4_exp"
    ):  # the text model alone; no cache depends on the two fields that its config class and vLLM insist on
        config = {**config["text_config"], "architectures": ["Qwen4ExpForCausalLM"]}
        config.update(eos_token_id=0, output_gate_type="silu")
    Path(folder, "config.json").write_text(json.dumps(config))
    return folder


def _group(group: object) -> dict[str, object]:
    spec = group.kv_cache_spec
    inner = list(getattr(spec, "kv_cache_specs", {}).values()) or [spec]
    return {
        "spec": type(spec).__name__,
        "layers": len(group.layer_names),
        "block_size": spec.block_size,
        "page": sorted({s.page_size_bytes for s in inner}),
    }


def _kind(layer: object) -> str:
    """What kind of a layer vLLM built, in our words."""
    mamba = getattr(layer, "mamba_type", None)
    if mamba is not None:
        name = str(getattr(mamba, "name", mamba)).lower()
        words = {
            "gdn_attn": "gdn",
            "mamba1": "mamba1",
            "mamba2": "mamba2",
            "short_conv": "short-conv",
            "linear": "lightning",
        }
        words["linear_attention"] = "lightning"
        return words.get(name, name)
    return "sliding" if getattr(layer, "sliding_window", None) else "full"


def _sizes(vc: object, config: object, groups: object) -> dict[str, object]:
    from vllm.v1.core import kv_cache_utils as utils

    specs = [g.kv_cache_spec for g in groups]
    cache = vc.cache_config
    return {
        "num_blocks": config.num_blocks,
        "groups": [_group(g) for g in groups],
        "concurrency": utils.get_max_concurrency_for_kv_cache_config(vc, config),
        "tokens": int(utils.get_max_concurrency_for_kv_cache_config(vc, config) * vc.model_config.max_model_len),
        "padded": cache.mamba_page_size_padded,
        "mode": cache.mamba_cache_mode,
        "dtypes": sorted({str(d).removeprefix("torch.") for s in specs for d in getattr(s, "dtypes", ())}),
        "state": sorted({s.real_page_size_bytes for s in specs if hasattr(s, "shapes")}),
    }


def cuda_platform(vc: object) -> object:
    """The base class's rules with a backend that takes multiples of 16, as CUDA's do; CPU's own choice of a block is undone."""
    from vllm.platforms.interface import Platform
    from vllm.v1.attention.backend import AttentionBackend, MultipleOf

    class Backend(AttentionBackend):
        @staticmethod
        def get_name() -> str:
            return "FLASH_ATTN"

        get_impl_cls = get_builder_cls = get_name

        @staticmethod
        def get_supported_kernel_block_sizes(kv_cache_spec: object = None) -> list[object]:
            return [MultipleOf(16)]

    class Rules(Platform):
        @classmethod
        def _find_non_ssm_backends(cls, vllm_config: object) -> list[object]:
            return [Backend]

        @classmethod
        def _find_non_ssm_backend(cls, vllm_config: object) -> object:  # 0.30
            return Backend

    if not vc.cache_config.user_specified_block_size:
        vc.cache_config.block_size = 16
    return Rules


def qwen4_exp(asked: dict[str, object]) -> dict[str, object]:
    """Qwen4Exp, whose sparse layers can't be built on a CPU: its specs made from vLLM's own classes as its model code does it, then
    vLLM's own alignment, grouping and capacity."""
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator as Shapes
    from vllm.model_executor.models import ModelRegistry
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum as Kind
    from vllm.v1.core import kv_cache_utils as utils
    from vllm.v1.kv_cache_interface import (
        CircularBufferSpec,
        FullAttentionSpec,
        MambaSpec,
        MLAAttentionSpec,
        get_kv_quant_mode,
    )

    c = json.loads((HERE / "families.json").read_text())["qwen4_exp"]["text_config"]
    asked = dict(asked)
    pool, ranks, drafts = asked.pop("pool"), asked.pop("tp", 1), asked.pop("mtp", 0)
    folder = _CACHE.setdefault("qwen3_next_80b", folder_of("qwen3_next_80b"))
    vc = EngineArgs(
        model=folder, enforce_eager=True, skip_tokenizer_init=True, tensor_parallel_size=ranks, **asked
    ).create_engine_config()
    state = STR_DTYPE_TO_TORCH_DTYPE[
        c["mamba_ssm_dtype"]
        if vc.cache_config.mamba_ssm_cache_dtype == "auto"
        else vc.cache_config.mamba_ssm_cache_dtype
    ]
    gdn = Shapes.gated_delta_net_state_shape(
        ranks, c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_key_head_dim"], c["linear_value_head_dim"],
        c["linear_conv_kernel_dim"], drafts,
    )  # fmt: skip
    ple = Shapes.short_conv_state_shape(
        1, c["hidden_size"] * c["hc_count"], (c["ple_conv_kernel_size"] - 1) * c["ngram_size"] + 1, drafts
    )
    text = vc.model_config.hf_text_config
    text.num_attention_heads, text.num_key_value_heads = c["num_attention_heads"], c["num_key_value_heads"]
    bf16, heads = torch.bfloat16, max(1, c["num_key_value_heads"] // ranks)

    class Model:
        @classmethod
        def get_mamba_specs_from_config(cls, vllm_config: object) -> tuple[object, ...]:
            return (
                MambaSpec(shapes=gdn, dtypes=(bf16, state), block_size=-1),
                MambaSpec(shapes=ple, dtypes=(bf16,), block_size=-1, tp_replicated=True),
            )

    real, ModelRegistry.resolve_model_cls = ModelRegistry.resolve_model_cls, lambda *a, **k: (Model, "")
    try:
        cuda_platform(vc).update_block_size_for_backend(vc)
    finally:
        ModelRegistry.resolve_model_cls = real
    cache = vc.cache_config
    shared = {
        "page_size_padded": cache.mamba_page_size_padded,
        "block_size": cache.mamba_block_size,
        "num_speculative_blocks": drafts,
    }
    shared["mamba_cache_mode"] = cache.mamba_cache_mode
    wide = bf16 if cache.cache_dtype == "auto" else STR_DTYPE_TO_TORCH_DTYPE[cache.cache_dtype]
    ratio, width = c["indexer_compress_ratio"], c["indexer_head_dim"]
    specs: dict[str, object] = {}
    for i in range(c["num_hidden_layers"] + (1 if drafts else 0)):
        if (i + 1) % c["full_attention_interval"] and i < c["num_hidden_layers"]:
            specs[f"layers.{i}.linear_attn"] = MambaSpec(
                shapes=gdn, dtypes=(bf16, state), mamba_type=Kind.GDN_ATTN, **shared
            )
            continue
        specs[f"layers.{i}.attn"] = FullAttentionSpec(
            block_size=cache.block_size, num_kv_heads=heads, head_size=c["head_dim"], dtype=wide,
            kv_quant_mode=get_kv_quant_mode(cache.cache_dtype),
        )  # fmt: skip
        ring = ratio * -(-(ratio + drafts) // ratio)
        specs[f"layers.{i}.raw"] = CircularBufferSpec(
            block_size=ring, num_kv_heads=1, head_size=width + 12, head_size_v=0, dtype=bf16
        )
        specs[f"layers.{i}.packed"] = MLAAttentionSpec(
            block_size=cache.block_size, num_kv_heads=1, head_size=width, dtype=bf16, tokens_per_state=ratio
        )
    specs["layers.1.ple"] = MambaSpec(
        shapes=ple, dtypes=(bf16,), mamba_type=Kind.SHORT_CONV, tp_replicated=True, **shared
    )
    cache.kv_cache_layout = "BLNHC"
    try:
        config = utils.generate_scheduler_kv_cache_config(utils.get_kv_cache_configs(vc, [specs], [pool]))
        groups = utils.get_kv_cache_groups(vc, dict(specs))
    except ValueError as error:
        return {"error": " ".join(str(error).split())[:300]}
    return {
        "block_size": cache.block_size,
        **_sizes(vc, config, config.kv_cache_groups),
        "groups": [_group(g) for g in groups],
        "bytes_per_block": utils._pool_bytes_per_block(vc, groups)
        if vllm_at_least_32()
        else utils._pool_bytes_per_block(groups),
    }


def latent(family: str, asked: dict[str, object]) -> dict[str, object]:
    """Models of MLA and state layers, whose classes need CUDA's kernels: the specs that their code makes, from vLLM's own
    classes and their own state sizes, then vLLM's own alignment, grouping and capacity."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models import ModelRegistry
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
    from vllm.v1.core import kv_cache_utils as utils
    from vllm.v1.kv_cache_interface import MambaSpec, MLAAttentionSpec, get_kv_quant_mode

    c = json.loads((HERE / "families.json").read_text())[family]
    asked = dict(asked)
    pool, ranks, caching = asked.pop("pool"), asked.pop("tp", 1), asked.pop("enable_prefix_caching", True)
    folder = _CACHE.setdefault(family, folder_of(family))
    vc = EngineArgs(
        model=folder,
        enforce_eager=True,
        skip_tokenizer_init=True,
        tensor_parallel_size=ranks,
        enable_prefix_caching=False,
        **asked,
    ).create_engine_config()
    if caching:  # the CPU's MLA can't, CUDA's can: what MambaModelConfig does then
        vc.cache_config.enable_prefix_caching, vc.cache_config.mamba_cache_mode = True, "align"
    model = vc.model_config
    cls, _ = ModelRegistry.resolve_model_cls(model.architecture, model_config=model)
    if "block_size" in asked:
        vc.cache_config.block_size = asked["block_size"]  # the CPU's MLA fixed it at 16
    else:
        vc.cache_config.user_specified_block_size = False
    cuda_platform(vc).update_block_size_for_backend(vc)
    cache = vc.cache_config
    wide = model.dtype if cache.cache_dtype == "auto" else STR_DTYPE_TO_TORCH_DTYPE[cache.cache_dtype]
    specs: dict[str, object] = {}
    for i in range(c["num_hidden_layers"]):
        if (i + 1) % 4 == 0:
            specs[f"layers.{i}.attn"] = MLAAttentionSpec(
                block_size=cache.block_size, num_kv_heads=1, head_size=model.get_head_size(), dtype=wide,
                cache_dtype_str=cache.cache_dtype, kv_quant_mode=get_kv_quant_mode(cache.cache_dtype),
            )  # fmt: skip
        else:
            specs[f"layers.{i}.state"] = MambaSpec(
                shapes=tuple(cls.get_mamba_state_shape_from_config(vc)), dtypes=cls.get_mamba_state_dtype_from_config(vc),
                block_size=cache.mamba_block_size, page_size_padded=cache.mamba_page_size_padded,
                mamba_cache_mode=cache.mamba_cache_mode, num_speculative_blocks=0,
            )  # fmt: skip
    cache.kv_cache_layout = "LBNHC"
    try:
        config = utils.generate_scheduler_kv_cache_config(utils.get_kv_cache_configs(vc, [specs], [pool]))
    except ValueError as error:
        return {"error": " ".join(str(error).split())[:300]}
    return {"block_size": cache.block_size, **_sizes(vc, config, config.kv_cache_groups)}


def vllm_at_least_32() -> bool:
    import vllm

    return tuple(int(n) for n in vllm.__version__.split(".")[:2]) >= (0, 32)


_CACHE: dict[str, object] = {}


def _build(family: str, asked: dict[str, object], ranks: int, speculative: int) -> object:
    """vLLM's config after it has built the model (and the draft) of one rank on the meta device: its layers are in the context."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel, parallel_state
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model

    folder = _CACHE.setdefault(family, folder_of(family))
    if speculative:
        asked["speculative_config"] = {"method": "mtp", "num_speculative_tokens": speculative}
    vc = EngineArgs(
        model=folder, enforce_eager=True, skip_tokenizer_init=True, tensor_parallel_size=ranks, **asked
    ).create_engine_config()
    with set_current_vllm_config(vc):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, "file://" + tempfile.mktemp(), 0, "gloo")
            vc.parallel_config.tensor_parallel_size, wanted = 1, vc.parallel_config.tensor_parallel_size
            vc.model_config.__dict__["is_moe"] = True  # the groups of experts are made whatever comes first
            initialize_model_parallel(1, 1)
            vc.parallel_config.tensor_parallel_size = wanted
        parallel_state.get_tp_group().world_size = ranks  # shapes ask for nothing else of the other ranks
        with torch.device("meta"):
            initialize_model(vllm_config=vc)
            if speculative:
                initialize_model(vllm_config=vc, model_config=vc.speculative_config.draft_model_config, prefix="draft")
    return vc


def layers(family: str) -> list[list[str]] | dict[str, str]:
    """Name, class and cache of every layer that holds a cache, as built; ``{"error": its words}`` where it can't be."""
    import torch
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    os.environ["VLLM_KIMI_K3_GEMM_AR"] = "0"  # kernels whose compiler may be missing; they hold no cache
    torch.set_default_dtype(torch.bfloat16)
    if not torch.cuda.is_available():  # layers make streams and events when they are built, and use them when they run
        for name in ("Stream", "Event"):
            setattr(torch.cuda, name, type(name, (), {"__init__": lambda self, *_, **__: None}))
    asked: dict[str, object] = {"max_model_len": 4096, "max_num_seqs": 8, "enable_prefix_caching": False}
    if family == "qwen4_exp":
        asked["engram_config"] = {"cpu_offload": False}  # else its table of n-grams is allocated, whatever the device
    try:
        vc = _build(family, asked, 1, 0)
        rows = []
        for name, layer in vc.compilation_config.static_forward_context.items():
            if isinstance(layer, AttentionLayerBase):
                spec = layer.get_kv_cache_spec(vc)
                rows.append([name, type(layer).__name__, _kind(layer), type(spec).__name__])
        return rows
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def short(family: str, asked: dict[str, object]) -> dict[str, object]:
    """The numbers of one setting, the short way. A refusal gives ``{"error": its words}``."""
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.platforms import current_platform
    from vllm.v1.core import kv_cache_utils as utils
    from vllm.v1.kv_cache_interface import AttentionSpec

    asked = dict(asked)
    pool, ranks, cuda = asked.pop("pool"), asked.pop("tp", 1), asked.pop("cuda", False)
    speculative = asked.pop("mtp", 0)
    try:
        vc = _build(family, asked, ranks, speculative)
        (cuda_platform(vc) if cuda else current_platform).update_block_size_for_backend(vc)
        layers, specs = {}, {}
        try:
            from vllm.v1.worker.utils import customize_attention_spec
        except ImportError:  # 0.30

            def customize_attention_spec(backend, spec):
                return backend.customize_spec(spec)

        aligned = vc.cache_config.block_size
        for name, layer in vc.compilation_config.static_forward_context.items():
            if isinstance(layer, AttentionLayerBase) and (spec := layer.get_kv_cache_spec(vc)):
                if isinstance(spec, AttentionSpec):
                    spec = customize_attention_spec(layer.get_attn_backend(), spec)
                layers[name], specs[name] = _kind(layer), spec
        vc.cache_config.kv_cache_layout = "LBHNC"  # the one that the CPU backend reads
        config = utils.generate_scheduler_kv_cache_config(utils.get_kv_cache_configs(vc, [specs], [pool]))
        got = {"block_size": aligned, **_sizes(vc, config, config.kv_cache_groups), "kinds": " ".join(layers.values())}
        got["in_flight"] = vc.max_in_flight_tokens
        return got
    except (ValueError, AssertionError, NotImplementedError) as error:
        return {"error": " ".join(str(error).split())[:300]}


def engine(family: str, asked: dict[str, object]) -> dict[str, object]:
    """The numbers of one setting from a whole engine."""
    from vllm import LLM

    asked = dict(asked)
    pool = asked.pop("pool")
    if asked.pop("tp", 1) != 1 or asked.pop("mtp", 0):
        raise SystemExit("one rank, no draft")
    llm = LLM(
        folder_of(family),
        load_format="dummy",
        enforce_eager=True,
        skip_tokenizer_init=True,
        kv_cache_memory_bytes=pool,
        **asked,
    )
    core = llm.llm_engine.engine_core.engine_core
    config, vc = core.scheduler.kv_cache_config, llm.llm_engine.vllm_config
    got = {"block_size": vc.cache_config.block_size, **_sizes(vc, config, config.kv_cache_groups)}
    got["logged"] = [vc.cache_config.kv_cache_size_tokens, vc.cache_config.kv_cache_max_concurrency]
    return got


MIB = 1 << 20
BASE = {"max_model_len": 4096, "max_num_seqs": 8, "max_num_batched_tokens": 2048, "pool": 256 * MIB}
VARIANTS = [
    {},
    {"enable_prefix_caching": False},
    {"kv_cache_dtype": "fp8"},
    {"block_size": 32, "max_model_len": 10000, "pool": 100_000_000},
    {"block_size": 256, "max_model_len": 65536, "max_num_seqs": 64, "pool": 512 * MIB},
    {"mamba_ssm_cache_dtype": "float32", "enable_prefix_caching": False, "max_model_len": 2048},
    {"mamba_ssm_cache_dtype": "bfloat16", "kv_cache_dtype": "fp8", "max_num_batched_tokens": 8192},
    {"tp": 2},
    {"pool": 3 * MIB, "max_model_len": 65536},
]
LARGE = [
    {"max_model_len": 32768, "pool": 20 << 30, "cuda": True},
    {"max_model_len": 262144, "pool": 40 << 30, "tp": 2, "kv_cache_dtype": "fp8"},
    {"max_model_len": 262144, "pool": 18 << 30, "enable_prefix_caching": False},
    {"max_model_len": 262144, "pool": 30 << 30, "cuda": True, "kv_cache_dtype": "fp8"},
]
SPARSE = [
    {"max_model_len": 262144, "pool": 60 << 30},
    {"max_model_len": 262144, "pool": 40 << 30, "tp": 2, "mtp": 3},
    {"max_model_len": 262144, "pool": 40 << 30, "tp": 4, "mtp": 3},
    {
        "max_model_len": 262144,
        "pool": 40 << 30,
        "tp": 2,
        "mtp": 3,
        "kv_cache_dtype": "fp8",
        "mamba_ssm_cache_dtype": "bfloat16",
    },
    {"max_model_len": 65536, "pool": 20 << 30, "tp": 8, "enable_prefix_caching": False},
    {"max_model_len": 32768, "pool": 10 << 30, "tp": 4, "mtp": 1, "block_size": 64},
    {"max_model_len": 262144, "pool": 1 << 30},
]
MTP = [{"mtp": 3}, {"mtp": 1, "kv_cache_dtype": "fp8", "enable_prefix_caching": False}]
ALL = [{"mamba_cache_mode": "all"}, {"mamba_cache_mode": "all", "kv_cache_dtype": "fp8", "block_size": 64}]


def settings(family: str, version: str) -> list[dict[str, object]]:
    """What is asked of one family: small models in all variants, real ones in a few."""
    config = json.loads((HERE / "families.json").read_text())[family]
    large = config.get("max_position_embeddings", 0) > 200_000
    if family == "qwen4_exp":
        return [{**BASE, **v} for v in SPARSE]
    mtp = MTP if "num_nextn_predict_layers" in config or "mtp_num_hidden_layers" in config else []
    every = [*(LARGE if large else VARIANTS), *mtp, *(ALL if version.startswith("0.30") and family in MAMBA2 else [])]
    return [{**BASE, **v} for v in every]


LATENT = ("kimi_linear", "bailing_v2_5")
MAMBA2 = ("zamba2", "nemotron_h", "falcon_h1", "granitemoehybrid", "jamba")


def main() -> None:
    prepare()
    mode, *rest = sys.argv[1:]
    if mode == "engine":
        print(json.dumps(engine(rest[0], {**BASE, **json.loads(rest[1])})))
        return
    import torch
    import vllm

    if mode == "layers":
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        for family in rest:
            made = {"vllm": vllm.__version__, "torch": torch.__version__, "on": gpu}
            print(json.dumps({"family": family, **made, "built": layers(family)}))
        return

    families = rest or list(json.loads((HERE / "families.json").read_text()))
    rows = []
    for family in families:
        for asked in settings(family, vllm.__version__):
            way = {"qwen4_exp": qwen4_exp}.get(family) or (
                partial(latent, family) if family in LATENT else partial(short, family)
            )
            got = way(asked)
            rows.append({"family": family, "asked": asked, "got": got})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    body = ",\n".join(json.dumps(row) for row in rows)
    print(f'{{"vllm": "{vllm.__version__}", "cases": [\n{body}\n]}}')


if __name__ == "__main__":
    main()
