"""A folder that looks as if vLLM had been installed in it, a few files long."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

REGISTRY_TEXT = """
_TEXT = {
    # [Decoder-only]
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "Qwen3NextForCausalLM": (
        "qwen3_next",
        "Qwen3NextForCausalLM",
    ),
}

_EMBEDDING = {
    "BertModel": ("bert", "BertModel"),
    **{k: (mod, arch) for k, (mod, arch) in _TEXT.items() if arch == "LlamaForCausalLM"},
}

_VLLM_MODELS = {**_TEXT, **_EMBEDDING}

_PREVIOUSLY_SUPPORTED_MODELS = {"GoneForCausalLM": "0.28.0"}

ModelRegistry = _ModelRegistry(
    {arch: _Lazy(module_name=f"vllm.{mod}", class_name=cls) for arch, (mod, cls) in _VLLM_MODELS.items()}
)
"""
MODELS = "vllm/model_executor/models/__init__.py"
REGISTRY = "vllm/model_executor/models/registry.py"
LOADER = "vllm/model_executor/model_loader/weight_utils.py"
ATTENTION = "vllm/v1/attention/backends/flash_attn.py"
CONFIG = "vllm/model_executor/layers/fused_moe/configs/E=8,N=1024.json"
FILES = {
    "vllm/__init__.py": "__version__ = 'x'\n",
    "vllm/_C.abi3.so": "\x7fELF",
    MODELS: "from .registry import ModelRegistry\n",
    REGISTRY: REGISTRY_TEXT,
    LOADER: "def load(): ...\n",
    ATTENTION: "class FlashAttention: ...\n",
    CONFIG: "{}\n",
}


def row(path: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    name = f'"{path}"' if "," in path else path
    return f"{name},sha256={digest},{len(data)}"


def install(
    site: Path,
    name: str = "vllm",
    version: str = "0.32.0",
    more: Mapping[str, str] | None = None,
    installer: str = "pip",
) -> Path:
    """Write the files, a RECORD of them as pip writes it, and what stands beside it. The folder of metadata."""
    rows = ["../../../bin/vllm,sha256=x,238"]
    for path, text in {**FILES, **(more or {})}.items():
        data = text.encode()
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
        rows.append(row(path, data))
    compiled = site / "vllm/__pycache__/__init__.cpython-312.pyc"
    compiled.parent.mkdir(exist_ok=True)
    compiled.write_bytes(b"\0")
    rows.append("vllm/__pycache__/__init__.cpython-312.pyc,,")
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    rows += [f"{info.name}/RECORD,,", ""]
    (info / "RECORD").write_bytes("\n".join(rows).encode())
    (info / "INSTALLER").write_text(f"{installer}\n")
    return info
