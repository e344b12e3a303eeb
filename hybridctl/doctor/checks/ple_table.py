"""Does the n-gram table of Qwen4Exp fit where this launch puts it?"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.checks._ple import Placement, placement, table_gib
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Finding, Fix, Outcome, Severity

_SOURCES = [
    "https://recipes.vllm.ai/Qwen/Qwen3.8-Flash-Next",
    "https://github.com/vllm-project/vllm/issues/53908",
    "https://huggingface.co/RadixArk/Qwen3.8-Flash-Next-NVFP4/discussions/2",
]
_LARGE_CARD_GIB = 90  # 96 GB cards report 93 to 96 GiB
_RESERVE_GIB = 4  # activations, graphs and a little KV cache


def _on_gpu(facts: Facts, where: Placement) -> Finding | bool | None:
    memory = read.amount(facts, "gpu.memory_gib")
    ranks = layout(facts)
    table = table_gib(facts)
    if where.where == "host":
        return None
    # A version that can't be compared may be the preview image, where the table stays on the GPU unless it is asked away.
    if memory is None or (where.where is None and where.asked is not False):
        return None
    if ranks.tp is None or memory[0] >= _LARGE_CARD_GIB:
        return True if memory[0] >= _LARGE_CARD_GIB else None
    size = read.amount(facts, "model.size_gib")
    arithmetic: list[Evidence] = []
    if size and table:
        rest = max(0.0, size[0] - table[0]) / (ranks.tp.value * (ranks.pp.value if ranks.pp else 1))
        if rest + table[0] + _RESERVE_GIB <= memory[0]:
            return True
        total = f"{rest:.1f} GiB of weights + {table[0]:.1f} GiB of table a GPU"
        arithmetic = [
            Evidence("weights a GPU", total, f"<={memory[0]:.0f} GiB", str(size[1].origin), size[1].origin.quote)
        ]
    severity: Severity = "error" if where.where == "gpu" and arithmetic else "warning"
    return read.finding(
        "ple-table-on-gpu-oom",
        "The n-gram table of this model lands in GPU memory",
        "oom",
        "info" if read.past(facts, "load") else severity,
        "The n-gram embedding (PLE) holds 51 billion parameters: 95 GiB in BF16, 48 in FP8, 27 in NVFP4. 0.29.0 keeps it on the "
        "GPU, the preview image too unless it is asked not to; from 0.30.0 it lies in host memory by default.",
        [
            *where.says,
            read.quote(memory[1], f">={_LARGE_CARD_GIB} GiB, or the table in host memory"),
            *arithmetic,
            ranks.tp.evidence,
        ],
        [
            Fix(
                "Use vLLM 0.30.0 or newer: the table then lies in host memory by default.",
                "uv pip install -U 'vllm>=0.30.0'",
            ),
            Fix(
                "In the preview image, ask for it (the container needs SYS_PTRACE).",
                "docker run --gpus all --ipc=host --cap-add=SYS_PTRACE -e VLLM_PLE_CPU_OFFLOAD=1 vllm/vllm-openai:qwen38-flash-next"
                f" --model {facts.value('model.name') or 'MODEL'}",
            ),
            Fix("Or take a checkpoint with a smaller table (NVFP4: 27 GiB).", None),
        ],
        _SOURCES,
        "maintainer-confirmed",
    )


def _in_host(facts: Facts, where: Placement) -> Finding | bool | None:
    ram, table = read.amount(facts, "platform.ram_gib"), table_gib(facts)
    if where.where != "host" or ram is None or table is None:
        return None
    if ram[0] > table[0]:
        return True
    return read.finding(
        "ple-host-ram-exhausted",
        f"Host memory of {ram[0]:.0f} GiB can't hold the n-gram table of {table[0]:.0f} GiB",
        "oom",
        "info" if read.past(facts, "load") else "error",
        "The table lies in pinned host memory, which can't be swapped; the process is killed while it loads.",
        [
            Evidence(
                "platform.ram_gib", f"{ram[0]:g}", f">{table[0]:.0f} GiB", str(ram[1].origin), ram[1].origin.quote
            ),
            table[1],
            *where.says,
        ],
        [
            Fix("Take a checkpoint with a smaller table, or more host memory (in WSL2: memory= in .wslconfig).", None),
            Fix(
                "Or keep the table on the GPUs, where they are large enough (0.31 and later).",
                f"vllm serve {facts.value('model.name') or 'MODEL'} --engram-config '{{\"cpu_offload\": false}}'",
            ),
        ],
        ["https://github.com/DominikBucko/qwen38-flash-next-2x3090/issues/2"],
        "reporter-confirmed",
    )


def _ignored_variable(facts: Facts) -> Finding | None:
    variable, vllm = facts.get("env.VLLM_PLE_CPU_OFFLOAD"), read.version(facts, "pkg.vllm")
    if variable is None or vllm is None:
        return None
    old, new = vllm.within(">=0.29.0,<0.30.dev0"), vllm.within(">=0.31")
    if not old and not new:
        return None
    wants_host = str(variable.value).strip().lower() not in ("0", "false", "")
    harmless = (bool(new) and wants_host) or (bool(old) and not wants_host)
    return read.finding(
        "ple-offload-env-ignored",
        "VLLM_PLE_CPU_OFFLOAD does nothing in this release",
        "config",
        "info" if harmless or read.past(facts, "load") else "warning",
        "Only the preview image (off by default) and 0.30 (on by default) read this variable. 0.29 keeps the table on the GPU "
        "whatever it says; from 0.31 on --engram-config decides, and host memory is the default.",
        [read.quote(variable, "unset"), vllm.evidence("0.30.*")],
        [
            Fix("Upgrade to 0.30.0 or newer.", "uv pip install -U 'vllm>=0.30.0'")
            if old
            else Fix(
                "Say it with --engram-config.",
                f"vllm serve {facts.value('model.name') or 'MODEL'} --engram-config "
                f"'{{\"cpu_offload\": {str(wants_host).lower()}}}'",
            )
        ],
        ["https://github.com/vllm-project/vllm/pull/57910"],
        "measured",
    )


def run(context: Context) -> Outcome:
    facts = context.facts
    ours, _ = read.is_architecture(facts, *read.QWEN4EXP)
    if ours is False or read.engine(facts) not in (None, "vllm"):
        return CHECK.not_applicable("no Qwen4Exp model in vLLM")
    if ours is None:
        return CHECK.unknown("the architecture of the model")
    where = placement(facts)
    results = [_on_gpu(facts, where), _in_host(facts, where), _ignored_variable(facts)]
    if findings := [r for r in results if isinstance(r, Finding)]:
        return CHECK.found(*findings)
    if True in results:
        return CHECK.ok("the n-gram table has room where it lies")
    return CHECK.unknown("pkg.vllm, the launch line, gpu.memory_gib and platform.ram_gib")


CHECK = Check("ple-table", "Place of the n-gram table", run)
