"""Train the demo model.

    python corpus.py DATA && python train.py DATA OUT --minutes 6

One GPU, or a CPU for a look (--steps 5 --batch 2). The learning rate follows the clock, so --minutes is what it takes.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import gzip
import json
import math
import time
from pathlib import Path

import fast_attention
import numpy as np
import torch
from modeling import CONTEXT, CUT, build, load, save, set_cut, window_loss
from tokens import BEGIN, END
from torch import Tensor

DOUBLED = 2 * CUT
WRONG = {"all_flash": CONTEXT, "all_linear": 0, "doubled": DOUBLED}


def stream(path: Path) -> Tensor:
    """All training documents in one line, <|endoftext|> after each: int16 [tokens]."""
    data = np.load(path)
    ends = np.cumsum(data["lengths"])
    return torch.from_numpy(np.insert(data["text"].astype(np.int16), ends, END))


def held_out(path: Path) -> Tensor:
    windows = json.loads(gzip.decompress(path.read_bytes()))["windows"]
    return torch.tensor([[BEGIN, *bytes.fromhex(w["text"])] for w in windows])


def batch_of(text: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Windows from random places, each behind <|begin|>: int64 [size, 2048]."""
    start = torch.randint(0, len(text) - CONTEXT, (size, 1), generator=generator, device=text.device)
    ids = text[start + torch.arange(CONTEXT - 1, device=text.device)].long()
    return torch.nn.functional.pad(ids, (1, 0), value=BEGIN)


@torch.no_grad()
def late_losses(model: torch.nn.Module, ids: Tensor) -> dict[str, float]:
    """Mean loss of the positions from the cut on, by routing; "early" is that of the positions before it."""
    out = {}
    for name, cut in {"routed": CUT, **WRONG}.items():
        set_cut(model, cut)
        loss = torch.cat([window_loss(model, part) for part in ids.split(16)])
        out[name] = loss[:, CUT:].mean().item()
        if name == "routed":
            out["early"] = loss[:, :CUT].mean().item()
    set_cut(model, CUT)
    return out


def optimizer_for(model: torch.nn.Module, rate: float, fused: bool) -> torch.optim.Optimizer:
    """AdamW, with weight decay on the dense matrices only."""
    dense, plain = [], []
    for name, weight in model.named_parameters():
        (plain if weight.dim() < 2 or "embed" in name or "linear_proj" in name else dense).append(weight)
    groups = [{"params": dense, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=fused)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--init", type=Path, help="folder of a trained model to go on from")
    parser.add_argument("--small", type=float, default=0.05, help="weight of the penalty on denominators below 1")
    parser.add_argument("--contrast", type=float, default=0.0, help="margin in nats of the contrast term; 0: without")
    parser.add_argument("--contrast-from", type=float, default=0.5, help="share of the time after which it begins")
    parser.add_argument("--report", type=float, default=40.0, help="seconds between reports, each with a checkpoint")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(args.seed)
    text = stream(args.data / "train.npz").to(device)
    kept = held_out(args.data / "heldout.json.gz").to(device)[:: 4 if device == "cuda" else 104]
    draw = torch.Generator(device=device).manual_seed(args.seed)
    model = (load(args.init, device) if args.init else build().to(device)).train()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(text):,} tokens, {device}", flush=True)
    run = torch.compile(model, dynamic=False) if args.compile else model
    optimizer = optimizer_for(model, args.rate, device == "cuda")
    if args.compile:  # before the clock starts
        ids = batch_of(text, args.batch, draw)
        fast_attention.watched = [] if args.small else None
        window_loss(run, ids).mean().backward()
        fast_attention.watched = None
    log = []
    begin = time.monotonic()
    step, shown = 0, begin
    while step < args.steps:
        done = max((time.monotonic() - begin) / (60 * args.minutes), step / args.steps)
        if done >= 1.0:
            break
        rate = args.rate * min(1.0, (step + 1) / 100) * max(0.02, 0.5 + 0.5 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids = batch_of(text, args.batch, draw)
        fast_attention.watched = [] if args.small else None
        right = window_loss(run, ids)
        small = sum(fast_attention.watched or [torch.zeros(())])
        fast_attention.watched = None
        loss = right.mean() + args.small * small
        if args.contrast and done >= args.contrast_from:
            # The same text with the thresholds doubled, and a penalty where that is not worse by the margin.
            set_cut(model, DOUBLED)
            wrong = window_loss(run, ids[: args.batch // 2])[:, CUT:].mean()
            gap = wrong - right[: args.batch // 2, CUT:].mean().detach()
            loss = loss + torch.relu(args.contrast - gap)
            set_cut(model, CUT)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if time.monotonic() - shown > args.report or step == args.steps:
            shown = time.monotonic()
            row = {
                "step": step,
                "seconds": round(shown - begin, 1),
                "loss": loss.item(),
                "small": float(small),
                **late_losses(model, kept),
            }
            log.append(row)
            print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
            save(model, args.out)
    row = {"step": step, "seconds": round(time.monotonic() - begin, 1), **late_losses(model, kept)}
    print("end", {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    save(model, args.out)
    (args.out / "log.json").write_text(json.dumps([*log, row], indent=1))


if __name__ == "__main__":
    main()
