"""Names of packages, as one name each: case, dots and underscores don't count, and some things go by several names."""

from __future__ import annotations

import re

_ALIASES = {
    "fla": "flash-linear-attention",
    "flashinfer": "flashinfer-python",
    "pytorch": "torch",
    "huggingfacehub": "huggingface-hub",
    "hf-hub": "huggingface-hub",
    "flash-attention": "flash-attn",
    "flashattention": "flash-attn",
    "flash-attention-2": "flash-attn",
    "lm-studio": "lmstudio",
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
}

# Names that may stand alone in front of a version, outside of any list of packages: those that a report on serving a
# model is about.
_KNOWN_TEXT = """
accelerate apache-tvm-ffi auto-gptq auto-round autoawq bitsandbytes causal-conv1d compressed-tensors cuda-bindings
cuda-python cupy datasets deep-ep deep-gemm diffusers einops fastsafetensors flash-attn flash-attn-3 flash-attn-4
flash-linear-attention flashinfer-cubin flashinfer-jit-cache flashinfer-python gguf gptqmodel hf-transfer hf-xet
huggingface-hub kernels llama.cpp llguidance llmcompressor lmcache lmstudio mamba-ssm mistral-common modelscope
mooncake-transfer-engine nccl ninja nixl numba numpy nvidia-cutlass-dsl nvidia-ml-py ollama openai optimum outlines
outlines-core packaging peft protobuf pycuda pydantic pynvml quack-kernels ray runai-model-streamer safetensors
sentencepiece setuptools sgl-kernel sglang sglang-kernel tensorizer tensorrt tensorrt-llm tiktoken tilelang tokenizers
torch torchao torchaudio torchcodec torchvision transformers triton triton-kernels tvm-ffi unsloth uv vllm vllm-ascend
vllm-flash-attn xformers xgrammar
"""
_KNOWN = frozenset(_KNOWN_TEXT.split())
_KNOWN_FAMILIES = re.compile(
    r"nvidia-[a-z0-9-]+-cu1\d|nvidia-cu[a-z0-9-]+|flashinfer-[a-z-]+|flash-attn-\d|nvidia-nccl"
)


def normalise(name: str) -> str:
    """The name under which a package goes in ``pkg.*``: as on the package index (PEP 503), aliases resolved."""
    key = re.sub(r"[-_.\s]+", "-", name.strip().strip("`*'\"")).strip("-").lower()
    return _ALIASES.get(key, key)


def is_known(name: str) -> bool:
    """Whether a name followed by a version can be taken as a package without a list around it."""
    key = normalise(name)
    return key in _KNOWN or bool(_KNOWN_FAMILIES.fullmatch(key))
