"""Errors that are no Python exceptions: compilers, linkers, native crashes, the kernel, container engines, llama.cpp, Rust."""

# ruff: noqa: E501  (tables of patterns read best a row a line)
from __future__ import annotations

import re

# (name, pattern of the body, whether following lines belong to it). The name becomes the type of the error.
_RULES: tuple[tuple[str, str, bool], ...] = (
    ("C++ exception", r"terminate called after throwing an instance of '(?P<cpp>[^']+)'|terminate called (?:without|recursively)", True),
    ("Segmentation fault", r"!+ Segfault encountered !+|^\S*\s?(?:\(core dumped\))?Segmentation fault|Segmentation fault \(core dumped\)"
     r"|\*{3} SIGSEGV", True),
    ("Fatal Python error", r"^Fatal Python error: ", True),
    ("Aborted", r"^(?:.{0,80}: line \d+:\s+\d+ )?(?:Aborted|Bus error|Illegal instruction|Floating point exception)(?: +\(core dumped\)|$)"
     r"|\*{3} SIG(?:ABRT|BUS|ILL|FPE)", False),
    ("Heap corruption", r"(?:free|realloc|munmap_chunk|malloc)\(\): (?:invalid|corrupted|unaligned|double)|double free or corruption"
     r"|corrupted size vs\. prev_size|malloc_consolidate\(\)", False),
    ("Killed", r"^(?:.{0,80}: line \d+:\s+\d+ )?Killed(?:\s{2,}.*)?$|OOMKilled|oom-kill(?:er)?[: ]|Out of memory: Kill(?:ed)? process"
     r"|Memory cgroup out of memory|invoked oom-killer", False),
    ("NVRM Xid", r"NVRM: Xid ", False),
    ("NVRM", r"NVRM: (?!Xid|loading|GPU Board Serial).{0,200}(?:fail|mismatch|error|not supported)", False),
    ("Rust panic", r"thread '[^']*' (?:\(\d+\) )?panicked at", True),
    ("ptxas", r"ptxas (?:fatal|error|\S+, line \d+; (?:fatal|error))\b", False),
    ("nvcc", r"nvcc fatal\b|nvcc error\b", False),
    ("nvlink", r"nvlink (?:fatal|error)\b", False),
    ("compiler", r"^(?:In file included from )?\S[^:\n]{0,300}:\d+:\d+: (?:fatal )?error: |^\S[^(\n]{0,300}\(\d+\): (?:catastrophic )?error\b"
     r"|^(?:cc1plus|cc1|g\+\+|gcc|clang|c\+\+|hipcc|cl|LINK)\s?:\s?(?:fatal )?error\b|namespace '[^']+' has no member '"
     r"|^.{0,120}#error\b", True),
    ("linker", r"(?:^|/)(?:ld|lld|gold|collect2)(?:\.\w+)?: (?:error|cannot find|.{0,200}undefined reference)|undefined reference to `"
     r"|cannot find -l\w+", False),
    ("cmake", r"^CMake Error\b|Could NOT find \w+", True),
    ("loader", r"error while loading shared libraries: ", False),
    ("assertion", r"Assertion [`'].{0,400} failed\.?|GGML_ASSERT\(.{0,300}\) failed|CUDA_KERNEL_ASSERT", True),
    ("llama.cpp", r"(?:^|: )error loading model\b|failed to load model\b|unknown model architecture|unable to load model"
     r"|ggml_\w+: .{0,200}(?:failed|error)\b|CUDA error: ", False),
    ("argument error", r"^[\w./ -]{1,60}: error: (?:unrecognized arguments|argument |the following arguments|invalid choice|ambiguous)", False),
    ("shell", r"(?:^|: )(?:line \d+: )?[\w./-]{1,80}: (?:command )?not found$|^exec .{1,200}: (?:no such file|exec format error)"
     r"|: cannot execute\b", False),
    ("container engine", r"Error response from daemon: |OCI runtime \w+ failed|nvidia-container-cli: |could not select device driver"
     r"|^(?:docker|podman): Error|Failed to pull image|ErrImagePull|ImagePullBackOff|CrashLoopBackOff|CreateContainer\w*Error", False),
    ("pip", r"^ERROR: (?:Could not|No matching|Cannot|Failed|pip's|Package|ResolutionImpossible|.{0,200}is not a supported wheel)"
     r"|^error: (?:subprocess-exited-with-error|metadata-generation-failed|externally-managed|can't find Rust)"
     r"|× No solution found", True),
    ("CUDA", r"^(?:CUDA|cuda|CU)[_A-Za-z]*(?:Error|ERROR)\w*\b|(?:^| )cudaError\w+: |CUDA_ERROR_[A-Z_]+|cudaErrorUnknown", False),
    ("NCCL", r"^nccl\w*Error: ", True),
    ("nvidia-smi", r"NVIDIA-SMI has failed|Failed to initialize NVML", False),
    ("HTTP", r"HTTPError: \d{3}|\b[45]\d\d (?:Client|Server) Error\b|^(?:curl|wget): .{0,40}(?:\(\d+\)|error)", False),
    ("Permission denied", r"^(?:\S{1,80}: ){1,2}.{0,200}Permission denied$", False),
    ("systemd", r"Out of memory\. Killing|A process of this unit has been killed by the OOM killer", False),
)  # fmt: skip
_FAULT = re.compile("|".join(f"(?P<r{i}>{pattern})" for i, (_, pattern, _) in enumerate(_RULES)))
_GATES = (
    "rror", "ail", "fault", "Killed", "Xid", "NVRM", "kill", "panicked", "fatal", "terminate called", "core dumped", "SIG",
    "denied", "not found", "cannot", "no member", "Assert", "nvalid", "corrupt", "NVML", "Abort", "undefined", "memory",
    "could not", "Could", "Back", "No solution", "no such file", "architecture", "ERROR", "instruction", "llegal", "ouble free",
)  # fmt: skip
_WHAT = re.compile(r"what\(\):\s*(.*)")


def fault_of(body: str) -> tuple[str, bool] | None:
    """``(type, has following lines)`` when the line is such an error, else ``None``."""
    if not any(gate in body for gate in _GATES):
        return None
    m = _FAULT.search(body[:1500])
    if m is None:
        return None
    name, _, more = _RULES[int((m.lastgroup or "r0")[1:])] if m.lastgroup != "cpp" else _RULES[0]
    return (m["cpp"] if name == "C++ exception" and m["cpp"] else name), more


def what_of(text: str) -> str | None:
    """What a C++ exception says."""
    m = _WHAT.search(text)
    return m[1].strip() if m else None
