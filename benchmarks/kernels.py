"""Times the linear-attention kernels on this machine's GPU, beside torch's flash attention and the bytes that must move.

Everything runs in CUDA graphs, over several sets of inputs in turn so that the cache holds none of them, medians of 20. bfloat16,
32 query and 8 key/value heads of 128. The floor is the fewest bytes (each input read once, each output written once) at the
bandwidth that a large multiplication on this machine reaches, measured first.

    python benchmarks/kernels.py -o benchmarks/results/kernels_h200.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from hybridctl.kernels.linear_attention.launch import Pages, for_sizes

HEADS, GROUPS, SIZE, PAGE = 32, 8, 128, 16
LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)


def median(calls: list[Callable[[], Any]], repeats: int = 20) -> float:
    """Median µs of the calls, taken in turn, each in a graph."""
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    graphs = []
    with torch.cuda.stream(stream):
        for call in calls:
            call()
        stream.synchronize()
        for call in calls:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                call()
            graphs.append(graph)
        seen = []
        for index in range(repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            graphs[index % len(graphs)].replay()
            end.record(stream)
            stream.synchronize()
            seen.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(seen)


def bandwidth() -> float:
    """Bytes a µs of reading and writing a gigabyte each."""
    x = torch.empty(1 << 28, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.numel() * 4 / median([lambda: torch.mul(x, 2.0, out=y)])


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def tensors(tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q = torch.randn(tokens, HEADS, SIZE, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(tokens, GROUPS, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return q, k, v


def states(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, GROUPS, SIZE, SIZE, device="cuda"), torch.rand(rows, GROUPS, SIZE, device="cuda") + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    output = parser.parse_args().output
    kernels = for_sizes(SIZE, SIZE, SIZE, HEADS // GROUPS, PAGE, torch.bfloat16, False)
    rate = bandwidth()
    rows: list[dict[str, Any]] = []

    def add(kernel: str, size: str, took: float, moved: int, **more: float) -> None:
        floor = moved / rate
        rows.append({"kernel": kernel, "size": size, "us": round(took, 2), "floor_us": round(floor, 2),
                     "of_floor": round(floor / took, 3), **more})  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)  # noqa: T201

    for length in LENGTHS:
        calls, flash, kept = [], [], []
        for _ in range(3 if length <= 32768 else 1):
            q, k, v = tensors(length)
            out, (state, norm) = torch.empty_like(q), states(1)
            segment = kernels.segment(length, GROUPS)
            work = torch.empty(kernels.workspace_floats(length, 1, GROUPS, segment), device="cuda")
            at = (ints(0), ints(length), ints(0), state, norm, out)
            fresh = torch.ones(1, dtype=torch.uint8, device="cuda")
            kept.append((q, k, v, at, fresh, work))
            calls.append(
                lambda a=kept[-1], s=segment: kernels.prefill(*a[:3], *a[3], fresh=a[4], segment=s, workspace=a[5])
            )
            wide = [x.transpose(0, 1)[None] for x in (q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))]
            flash.append(lambda w=wide: scaled_dot_product_attention(*w, is_causal=True))
        took = median(calls)
        more: dict[str, float] = {}
        if length <= 65536:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                more["torch_flash_us"] = round(median(flash, 8), 1)
        moved = length * 2 * (2 * HEADS + 2 * GROUPS) * SIZE
        add(
            "prefill",
            f"1 x {length}",
            took,
            moved,
            segment=kernels.segment(length, GROUPS),
            **more,
        )
    for count in (1, 8, 32, 128, 512):
        calls = []
        for _ in range(max(2, min(8, int(300e6 / (count * GROUPS * SIZE * SIZE * 4)) + 1))):
            q, k, v = tensors(count)
            out, (state, norm) = torch.empty_like(q), states(count)
            row = torch.arange(count, dtype=torch.int32, device="cuda")
            calls.append(lambda a=(q, k, v, row, row, state, norm, out): kernels.decode(*a))
        moved = count * (GROUPS * SIZE * (SIZE + 1) * 8 + 2 * (2 * HEADS + 2 * GROUPS) * SIZE)
        add("decode", f"{count} rows", median(calls, 40), moved)
    for count, length in ((1, 4096), (16, 4096), (64, 4096)):
        cache = torch.randn(count * length // PAGE, GROUPS, PAGE, 2 * SIZE, device="cuda", dtype=torch.bfloat16)
        table = torch.randperm(len(cache), device="cuda").int().view(count, -1)
        first = torch.arange(count, dtype=torch.int32, device="cuda")
        state, norm = states(count)
        pages = Pages(cache, table, torch.zeros_like(first))
        fresh = torch.ones(count, dtype=torch.uint8, device="cuda")
        at = (pages, first * length, first * length + length, first, state, norm, count * length)
        moved = count * length * GROUPS * SIZE * 4 + count * GROUPS * SIZE * (SIZE + 1) * 4
        add("absorb", f"{count} x {length}", median([lambda a=at, f=fresh: kernels.absorb(*a, fresh=f)]), moved)
    q, _, _ = tensors(8192)
    cache = torch.randn(8192 // PAGE, GROUPS, PAGE, 2 * SIZE, device="cuda", dtype=torch.bfloat16)
    pages = Pages(cache, torch.arange(len(cache), dtype=torch.int32, device="cuda")[None], ints(0))
    mask = torch.empty(8192, GROUPS, dtype=torch.uint8, device="cuda")
    first, last = ints(0), ints(8192)

    def entropy() -> None:
        kernels.entropy(q, None, first, last, mask, (2048, 6144), 0.8, SIZE**-0.5, pages=pages)

    add("entropy", "4096 of 8192", median([entropy]), 4096 * HEADS * SIZE * 2)
    document = {
        "schema_version": 1,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "compiler": [kernels.built.compiler.kind, kernels.built.compiler.version],
        "copy_tb_s": round(rate / 1e6, 3),
        "rows": rows,
    }
    if output:
        lines = ",\n  ".join(json.dumps(row) for row in rows)
        head = ",\n ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in document.items() if k != "rows")
        output.write_text(f'{{\n {head},\n "rows": [\n  {lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
