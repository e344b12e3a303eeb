"""What the dispatcher costs where every token takes the flash kernel: CPU time against the plain model, paired.

    python benchmarks/always_flash.py --out benchmarks/results/always_flash.json

In each of several fresh processes two engines live side by side: the model as it is, and the same weights routed with a threshold
that no request reaches. They answer the same prompts side by side, some engine steps each in turn, on one pinned CPU with one
thread: whatever else happens meets both alike. A pair is the answers to one batch; it gives a ratio of CPU times (of the
process: all threads, user and system; not wall time). Which engine was made first shows in its memory and its speed, so processes
come in couples, one in each order, and the interval is Student's t over the couples' mean log ratios.

--control compares the plain model with itself: what the method alone shows. The file is rewritten after each process.

Needs an environment with vLLM for the CPU and hybridctl (make test-vllm makes one: .venv-vllm/bin/python).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CONTEXT = 2048
THRESHOLD = CONTEXT - 1  # one position short of the context: with a linear token that can be, the start is not refused
# Two-sided 97.5 % points of Student's t by degrees of freedom, up to 15.
T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
SHAPES: dict[str, dict[str, Any]] = {
    # The model that comes with hybridctl has this shape: nothing but overhead.
    "demo": {"hidden": 128, "intermediate": 320, "layers": 4, "heads": 8, "groups": 4, "head_size": 64, "vocab": 260},
    "small": {
        "hidden": 512,
        "intermediate": 1536,
        "layers": 8,
        "heads": 8,
        "groups": 4,
        "head_size": 64,
        "vocab": 2048,
    },
    # Near the smallest model that anybody serves: --tokens 32 --pairs 6 keep a process below two minutes.
    "medium": {
        "hidden": 1024,
        "intermediate": 3072,
        "layers": 16,
        "heads": 16,
        "groups": 8,
        "head_size": 64,
        "vocab": 4096,
    },
}


def write_models(folder: Path, shape: dict[str, Any], control: bool) -> tuple[Path, Path]:
    """The plain checkpoint, and the routed one: the same weights, another config.json (with ``control`` the same)."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=shape["vocab"],
        hidden_size=shape["hidden"],
        intermediate_size=shape["intermediate"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["groups"],
        head_dim=shape["head_size"],
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    plain, routed = folder / "plain", folder / "routed"
    Qwen3ForCausalLM._from_config(config, dtype=torch.float32).save_pretrained(plain)
    routed.mkdir()
    (routed / "model.safetensors").symlink_to(plain / "model.safetensors")
    written = json.loads((plain / "config.json").read_text(encoding="utf-8"))
    if not control:
        written["architectures"] = ["HybridCtlQwen3ForCausalLM"]
        written["hybrid_config"] = {"thresholds": {"flash": THRESHOLD, "linear": THRESHOLD}}
    (routed / "config.json").write_text(json.dumps(written), encoding="utf-8")
    return plain, routed


def one_process(options: argparse.Namespace) -> None:
    """Measure in this process; print one JSON line."""
    from vllm import LLM, SamplingParams

    from hybridctl.runtime.vllm_plugin.counters import COUNTERS

    paths = dict(zip(("plain", "routed"), options.models, strict=True))
    names = list(paths) if options.index % 2 == 0 else list(reversed(paths))
    settings: dict[str, Any] = {"enable_prefix_caching": {"on": True, "off": False}.get(options.prefix_caching)}
    engines = {
        name: LLM(
            paths[name],
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=CONTEXT,
            enforce_eager=True,
            max_num_seqs=32,
            kv_cache_memory_bytes=1 << 27,
            **settings,
        )
        for name in names
    }
    vocabulary = SHAPES[options.shape[0]]["vocab"]
    params = SamplingParams(max_tokens=options.tokens, temperature=0, ignore_eos=True, detokenize=False)
    source = random.Random(options.index)
    parts: list[float] = []

    def pair(turn: int) -> tuple[list[float], bool]:
        """CPU seconds of plain and routed for one batch; whether they gave the same tokens."""
        prompts = [[source.randrange(1, vocabulary) for _ in range(options.prompt)] for _ in range(options.batch)]
        fronts = {name: engine.llm_engine for name, engine in engines.items()}
        for front in fronts.values():
            for i, prompt in enumerate(prompts):
                front.add_request(f"{turn}-{i}", {"prompt_token_ids": prompt}, params)
        taken, tokens = dict.fromkeys(paths, 0.0), {name: {} for name in paths}
        gc.collect()
        while any(front.has_unfinished_requests() for front in fronts.values()):
            turn += 1
            part = {}
            for name in names if turn % 2 else reversed(names):
                done = []
                begin = time.process_time()
                for _ in range(options.steps):
                    done += fronts[name].step()
                part[name] = time.process_time() - begin
                taken[name] += part[name]
                tokens[name].update(
                    {each.request_id: list(each.outputs[0].token_ids) for each in done if each.finished}
                )
            parts.append(math.log(part["routed"] / part["plain"]))
        return [round(taken[name], 6) for name in paths], tokens["plain"] == tokens["routed"]

    for turn in range(3):
        pair(turn)
    gc.collect()
    gc.freeze()
    parts.clear()
    before = dict(COUNTERS.counts)
    pairs, same = [], True
    for turn in range(options.pairs):
        times, equal = pair(turn + 3)
        pairs.append(times)
        same = same and equal
    counted = {kernel: COUNTERS.counts[kernel] - before[kernel] for kernel in before}
    caches = {name: engine.llm_engine.vllm_config.cache_config for name, engine in engines.items()}
    measured = {
        "first": names[0],
        "pairs_s": pairs,
        "median_part_ratio": round(math.exp(statistics.median(parts)), 4),
        "same_tokens": same,
        "kernel_tokens": counted,
        "prefix_caching": {name: bool(cache.enable_prefix_caching) for name, cache in caches.items()},
        "block_size": {name: cache.block_size for name, cache in caches.items()},
    }
    sys.stdout.write(json.dumps(measured) + "\n")


def run(options: argparse.Namespace, shape: str, index: int, models: tuple[Path, Path], cpu: int) -> dict[str, Any]:
    env = {
        **os.environ,
        "HYBRIDCTL_PLUGIN": "1",
        "VLLM_PLUGINS": "hybridctl",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    given = {
        "index": index,
        "shape": shape,
        "prefix-caching": options.prefix_caching,
        **{name: getattr(options, name) for name in ("pairs", "batch", "prompt", "tokens", "steps")},
    }
    arguments = ["--models", *map(str, models), *(f"--{name}={value}" for name, value in given.items())]
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
    )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def summary(processes: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratio routed / plain of CPU time: geometric mean, 95 % interval over couples of processes."""
    logs = [[math.log(routed / plain) for plain, routed in each["pairs_s"]] for each in processes]
    means = [statistics.fmean(each) for each in logs]
    couples = [(first + second) / 2 for first, second in zip(means[::2], means[1::2], strict=False)]
    centre = statistics.fmean(couples or means)
    found = {
        "ratio": round(math.exp(centre), 4),
        "couples": [round(math.exp(each), 4) for each in couples],
        "processes": [round(math.exp(each), 4) for each in means],
        "pair_sd": round(statistics.fmean(statistics.stdev(each) for each in logs), 4),
        "plain_ms_a_pair": round(1e3 * statistics.median(p for each in processes for p, _ in each["pairs_s"]), 3),
    }
    if len(couples) < 2:
        return found
    half = T975[min(len(couples) - 1, len(T975)) - 1] * statistics.stdev(couples) / math.sqrt(len(couples))
    interval = [round(math.exp(centre + sign * half), 4) for sign in (-1, 1)]
    return {**found, "interval_95": interval, "half_width": round(half, 4), "includes_1": abs(centre) <= half}


def machine() -> dict[str, Any]:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {"cpu": model, "cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--shape", choices=SHAPES, nargs="+", default=["demo", "small"], help="of the model; one run each"
    )
    parser.add_argument("--couples", type=int, default=6, help="of fresh processes")
    parser.add_argument("--pairs", type=int, default=16, help="in each process")
    parser.add_argument("--batch", type=int, default=8, help="requests of a shot")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--steps", type=int, default=8, help="of one engine before it is the other's turn")
    parser.add_argument("--prefix-caching", choices=("default", "on", "off"), default="default")
    parser.add_argument("--control", action="store_true", help="the plain model twice")
    parser.add_argument("--models", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--index", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.models:
        one_process(options)
        return
    from importlib.metadata import version

    cpu = max(os.sched_getaffinity(0))
    runs: list[dict[str, Any]] = []
    result: dict[str, Any] = {
        "benchmark": "always_flash",
        "machine": machine(),
        "vllm": version("vllm-cpu"),
        "torch": version("torch"),
        "runs": runs,
    }
    pair = {n: getattr(options, n) for n in ("batch", "prompt", "tokens", "steps", "prefix_caching", "control")}
    for shape in options.shape:
        processes: list[dict[str, Any]] = []
        runs.append({})
        with tempfile.TemporaryDirectory() as folder:
            models = write_models(Path(folder), SHAPES[shape], options.control)
            for index in range(2 * options.couples):
                processes.append(run(options, shape, index, models, cpu))
                found = {"summary": summary(processes), "pair": pair, "processes": processes}
                runs[-1] = {"shape": shape, **SHAPES[shape], **found}
                sys.stderr.write(f"{shape}, process {index + 1} of {2 * options.couples}: {runs[-1]['summary']}\n")
                if options.out:
                    options.out.write_text(as_text(result), encoding="utf-8")
    sys.stdout.write(as_text(result))


def as_text(result: dict[str, Any]) -> str:
    """JSON, a pair on a line."""
    return re.sub(r"\[\s+([\d.]+),\s+([\d.]+)\s+\]", r"[\1, \2]", json.dumps(result, indent=1)) + "\n"


if __name__ == "__main__":
    main()
