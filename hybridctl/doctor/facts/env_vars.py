"""Environment variables: collect_env's own section, ``env`` and ``export`` lines. Secrets are never taken."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.statements import Found

_SECTION = re.compile(r"\s*(?:=+\s*)?environment variables\s*:?(?:\s*=+)?\s*$", re.IGNORECASE)
_PAIR = re.compile(r"\s*(?:[-*$#%]\s+)?(?:export\s+|set\s+|setx\s+|ENV\s+|\$env:)?([A-Z][A-Z0-9_]{2,63})\s?=\s?(.*)$")
# "VLLM_USE_V1 : 0", as people list settings beside versions; only for names that can be nothing else.
_LISTED = re.compile(
    r"\s*((?:VLLM|SGLANG|SGL|NCCL|OLLAMA|TRITON|FLASHINFER|CUDA_VISIBLE|PYTORCH_CUDA)_[A-Z0-9_]{2,60})\s*:\s+(\S+)\s*$"
)
_SECRET = re.compile(
    r"TOKEN(?!IZER)|SECRET|PASSWORD|PASSWD|PASSPHRASE|(?:^|_)PASS$|CREDENTIAL|API_?KEY|ACCESS_KEY|_KEY$|AUTH"
)
_PREFIX_TEXT = """
CUDA_ CUDNN_ CUBLAS_ FLASHINFER_ FLA_ GLOO_ HF_ HIP_ HSA_ LD_ LMCACHE_ MODELSCOPE_ NCCL_ NVIDIA_ NVSHMEM_ OLLAMA_ OMP_
PYTHON PYTORCH_ RAY_ ROCM_ ROCR_ SGLANG_ SGL_ TORCH TRANSFORMERS_ TRITON_ UCX_ VLLM_ XLA_
"""
_PREFIXES = tuple(_PREFIX_TEXT.split())
_NAMES = (
    *("HOME", "PATH", "CC", "CXX", "CPATH", "TMPDIR", "CONDA_PREFIX", "VIRTUAL_ENV"),
    *("HTTPS_PROXY", "NO_PROXY", "MAX_JOBS"),
)


def parse(lines: Sequence[Line]) -> Found:
    """Every pair under a heading "Environment Variables"; elsewhere those whose name belongs to an engine or a library."""
    found = Found()
    in_section = False
    for line in lines:
        if _SECTION.match(line.text):
            in_section = True
            continue
        if (listed := _LISTED.match(line.text)) and not _SECRET.search(listed[1]):
            found.say(f"env.{listed[1]}", listed[2].strip("\"'"), line)
            continue
        pair = _PAIR.match(line.text) if "=" in line.text else None
        if not pair:
            in_section = in_section and not line.text.strip(" =-")
            continue
        name, value = pair[1], pair[2].strip()
        if _SECRET.search(name) or value[:1] == "=":
            continue
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        if quoted:
            value = value[1:-1]
        elif not in_section and (" " in value or (not name.startswith(_PREFIXES) and name not in _NAMES)):
            continue  # a launch line, or some program's setting
        if in_section or name.startswith(_PREFIXES) or name in _NAMES:
            found.say(f"env.{name}", value, line)
    return found
