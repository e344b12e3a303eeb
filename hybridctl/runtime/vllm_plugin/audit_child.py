"""Asks vLLM's own model which tensors it takes: built on the meta device, loaded with meta tensors made from headers.

A program for the target interpreter, run by its path: ``audit_child.py FOLDER LIST…``. The folder has a config.json and no weights;
a list is a file of ``[[name, dtype, shape], …]``, and each gets one line of JSON on stdout. Every copy into a parameter is counted
by a dispatch mode, so a parameter that gets less than its size shows, whatever the loader says of it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

ROUNDS = 40
"""How often loading starts anew without the tensors that stopped it."""
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "U16": "uint16",
    "U32": "uint32", "U64": "uint64", "C64": "complex64",
}  # fmt: skip
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def main() -> None:
    answer = os.fdopen(os.dup(1), "w")  # vLLM logs to stdout
    os.dup2(2, 1)
    # This file's folder would hide packages of others behind modules of the plugin.
    own = Path(__file__).resolve().parent
    sys.path[:] = [p for p in sys.path if Path(p).resolve() != own]
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR")
    folder, *lists = sys.argv[1:]
    said: dict[str, Any] = {"stage": "import"}
    try:
        model, config = _built(folder, said)
        for path in lists:
            rows = [(name, _dtype(dtype), tuple(shape)) for name, dtype, shape in json.loads(Path(path).read_text())]
            print(json.dumps({**said, **_loaded(model, config, rows)}), file=answer, flush=True)
    except Exception as error:  # noqa: BLE001  whatever a model's code raises is the answer
        said["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"
        print(json.dumps(said), file=answer)
    answer.close()


def _dtype(name: str) -> Any:
    import torch

    return getattr(torch, _DTYPES.get(name, "uint8"))


def _built(folder: str, said: dict[str, Any]) -> tuple[Any, Any]:
    """The model as the installed vLLM builds it, without memory, and its configuration."""
    import torch
    import vllm
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.triton_utils import triton

    if not hasattr(triton, "set_allocator"):  # vLLM's stand-in for Triton on the CPU lacks it, and some layers call it
        triton.set_allocator = lambda *_: None
    said.update(vllm=vllm.__version__, stage="config")
    config = EngineArgs(
        model=folder, enforce_eager=True, max_model_len=256, kv_cache_memory_bytes=1 << 28, skip_tokenizer_init=True
    ).create_engine_config()
    said["stage"] = "build"
    with set_current_vllm_config(config):
        meeting = tempfile.mkdtemp()
        init_distributed_environment(1, 0, f"file://{meeting}/at", 0, "gloo")
        initialize_model_parallel(1, 1)
        before = torch.get_default_dtype()
        torch.set_default_dtype(config.model_config.dtype)  # as vLLM's loader does it
        try:
            with torch.device("meta"):
                model = initialize_model(vllm_config=config)
        finally:
            torch.set_default_dtype(before)
    for module in model.modules():
        for name, held in list(module._parameters.items()):
            if held is not None and held.device.type != "meta":
                moved = torch.nn.Parameter(held.data.to("meta"), requires_grad=False)
                moved.__class__ = type(held)  # a vLLM parameter keeps its own way to load
                moved.__dict__.update(held.__dict__)
                module._parameters[name] = moved
    said.update(stage="load", model_class=type(model).__name__)
    return model, config


def _loaded(model: Any, config: Any, rows: list[tuple[str, Any, tuple[int, ...]]]) -> dict[str, Any]:
    """What each parameter got and what stopped loading.

    A tensor that stops it is left out, with those of its pattern, shape and dtype, and loading starts anew.
    """
    refused: list[dict[str, Any]] = []
    left = rows
    for _ in range(ROUNDS):
        counts, taken, stop = _run(model, config, left)
        if stop is None:
            return {"stage": "done", "refused": refused, **_result(model, counts, taken, left)}
        culprit, message = _culprit(model, config, left, *stop)
        if culprit is None:
            return {"refused": refused, "error": message}
        alike = {name for name, dtype, shape in left if (_pattern(name), dtype, shape) == culprit}
        refused.append({"names": [n for n, _, _ in left if n in alike], "shape": culprit[2], "error": message})
        left = [row for row in left if row[0] not in alike]
    return {"refused": refused, "error": f"still refused after {ROUNDS} rounds: {refused[-1]['error']}"}


def _pattern(name: str) -> str:
    return _NUMBER.sub("*", name)


def _culprit(model: Any, config: Any, rows: list[Any], current: str, message: str) -> tuple[Any, str]:
    """The kind of tensor, as (pattern, dtype, shape), without which loading comes further."""
    kinds = {(_pattern(name), dtype, shape): None for name, dtype, shape in rows}
    last = next(((_pattern(n), d, s) for n, d, s in rows if n == current), None)
    for kind in [last, *kinds] if last else list(kinds):
        _, _, stop = _run(model, config, [r for r in rows if (_pattern(r[0]), r[1], r[2]) != kind])
        if stop is None or stop[1] != message or stop[0] != current:
            return kind, message
    return None, message


def _run(model: Any, config: Any, rows: list[Any]) -> tuple[Counter[int], Counter[str], tuple[str, str] | None]:
    """One pass of vLLM's own load_weights: elements copied by storage, elements copied from each tensor, and what stopped it."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from vllm.config import set_current_vllm_config

    counts: Counter[int] = Counter()
    taken: Counter[str] = Counter()
    tags: dict[int, frozenset[str]] = {}
    kept: list[Any] = []  # a storage that is freed gives its address to another
    current = ""

    def place(tensor: Any) -> int:
        return int(tensor.untyped_storage()._cdata)

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = op(*args, **(kwargs or {}))
            sources: frozenset[str] = frozenset()
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, torch.Tensor):
                    sources |= tags.get(place(leaf), frozenset())
            if op in (torch.ops.aten.copy_.default, torch.ops.aten.index_put_.default):
                copied = args[1] if op is torch.ops.aten.copy_.default else args[2]
                counts[place(args[0])] += (args[0] if op is torch.ops.aten.copy_.default else copied).numel()
                for name in sources:
                    taken[name] += copied.numel()
            elif sources:
                for leaf in tree_leaves(out):
                    if isinstance(leaf, torch.Tensor) and place(leaf) not in tags:
                        tags[place(leaf)] = sources
                        kept.append(leaf)
            return out

    def stream() -> Iterator[tuple[str, Any]]:
        nonlocal current
        for name, dtype, shape in rows:
            current = name
            tensor = torch.empty(shape, dtype=dtype, device="meta")
            tags[place(tensor)] = frozenset((name,))
            kept.append(tensor)
            yield name, tensor

    try:
        with Watch(), set_current_vllm_config(config):
            model.load_weights(stream())
    except Exception as error:  # noqa: BLE001  any model's loader may raise anything
        return counts, taken, (current, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return counts, taken, None


def _result(model: Any, counts: Counter[int], taken: Counter[str], rows: list[Any]) -> dict[str, Any]:
    short: dict[str, list[int]] = {}
    sizes: dict[int, int] = defaultdict(int)
    for _, parameter in model.named_parameters():
        place = int(parameter.untyped_storage()._cdata)
        sizes[place] = max(sizes[place], parameter.numel())
    for name, parameter in model.named_parameters():
        place = int(parameter.untyped_storage()._cdata)
        if counts[place] < sizes[place]:
            short[name] = [counts[place], sizes[place]]
    return {
        "parameters": sum(1 for _ in model.named_parameters()),
        "short": short,
        "unused": [name for name, _, _ in rows if name not in taken],
        "cut": {name: [taken[name], prod(shape)] for name, _, shape in rows if 0 < taken[name] < prod(shape)},
    }


if __name__ == "__main__":
    main()
