"""Perplexity of the demo model beyond the cut, routed as trained and routed wrongly, on held-out text.

    python evaluate.py MODEL_DIR [--heldout FILE] [--out RESULT.json]

Float32 arithmetic on the bfloat16 weights. The interval is a bootstrap over documents: 10,000 draws, 2.5 to 97.5 per cent.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
from modeling import CONTEXT, CUT, HYBRID, load, set_cut, window_loss
from tokens import BEGIN

ROUTINGS = {"routed": CUT, "all_flash": CONTEXT, "all_linear": 0, "thresholds_doubled": 2 * CUT}
DRAWS = 10_000


def by_document(losses: np.ndarray, documents: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Sum of losses and number of tokens of each document: losses [windows, tokens]."""
    names = sorted(set(documents))
    row = np.array([names.index(d) for d in documents])
    return np.bincount(row, losses.sum(1), len(names)), np.bincount(row, minlength=len(names)) * losses.shape[1]


def interval(nats: np.ndarray, tokens: np.ndarray, less: np.ndarray | None = None) -> dict[str, object]:
    """exp of the mean loss, or of the mean difference to `less`, with its 95 % interval over documents."""
    nats = nats if less is None else nats - less
    draws = np.random.default_rng(0).integers(0, len(nats), (DRAWS, len(nats)))
    low, high = np.percentile(nats[draws].sum(1) / tokens[draws].sum(1), [2.5, 97.5])
    return {
        "value": round(math.exp(nats.sum() / tokens.sum()), 4),
        "interval_95": [round(math.exp(low), 4), round(math.exp(high), 4)],
    }


def figures(losses: dict[str, np.ndarray], documents: list[str]) -> dict[str, object]:
    """Perplexity by routing, and each wrong routing's perplexity as a multiple of the routed one's."""
    sums = {}
    for name, x in losses.items():
        sums[name], tokens = by_document(x, documents)
    return {
        "scored_bytes": int(tokens.sum()),
        "perplexity": {name: interval(s, tokens) for name, s in sums.items()},
        "against_routed": {name: interval(s, tokens, sums["routed"]) for name, s in sums.items() if name != "routed"},
    }


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--heldout", type=Path, help="default: heldout.json.gz beside the model")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--chosen-on", type=int, default=0, help="leave every Nth window out of a second set of figures"
    )
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    begin = time.monotonic()
    text = json.loads(gzip.decompress((args.heldout or args.model / "heldout.json.gz").read_bytes()))
    documents = [w["document"] for w in text["windows"]]
    ids = torch.tensor([[BEGIN, *bytes.fromhex(w["text"])] for w in text["windows"]], device=device)
    model = load(args.model, device)
    losses = {}
    for name, cut in ROUTINGS.items():
        set_cut(model, cut)
        losses[name] = torch.cat([window_loss(model, part) for part in ids.split(8)]).double().cpu().numpy()
    result = {
        "what": "perplexity per byte of positions from the cut on",
        "cut": CUT,
        "context": CONTEXT,
        "hybrid_config": HYBRID,
        "text": text["source"],
        "documents": len(set(documents)),
        "held_out_bytes": int((ids < BEGIN).sum()),
        "machine": torch.cuda.get_device_name() if device == "cuda" else f"CPU, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "dtype": "float32 arithmetic, bfloat16 weights",
        "seconds": round(time.monotonic() - begin, 1),
        **figures({name: x[:, CUT:] for name, x in losses.items()}, documents),
        "before_the_cut": figures({name: x[:, :CUT] for name, x in losses.items()}, documents),
    }
    if args.chosen_on:
        rest = [i for i in range(len(documents)) if i % args.chosen_on]
        some = {name: x[rest, CUT:] for name, x in losses.items()}
        result["without_windows_used_to_choose"] = figures(some, [documents[i] for i in rest])
    line = json.dumps(result, indent=2)
    print(line)
    if args.out:
        args.out.write_text(line + "\n")


if __name__ == "__main__":
    main()
