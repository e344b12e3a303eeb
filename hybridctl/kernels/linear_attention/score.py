"""Scores token sequences with the reference model, in a process of its own: JSON on standard input, JSON on standard output.

``python -m hybridctl.kernels.linear_attention.score``. In: model (folder), sequences ([[token ids]]), first (position of the first
token to score, one a sequence), configs ([hybrid_config or null for the checkpoint's own]). Out, for each config: rows of argmax,
logprobs (of the tokens that follow) and gap (between the two best), all float32 arithmetic.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def score(document: dict[str, Any]) -> list[list[dict[str, list[Any]]]]:
    """The answer to one request."""
    import torch

    from hybridctl.kernels.linear_attention.reference_model import load_reference

    out = []
    for config in document["configs"]:
        reference = load_reference(document["model"], config, dtype=torch.float32)
        rows = []
        for tokens, first in zip(document["sequences"], document["first"], strict=True):
            logits = reference.logits(tokens)[first - 1 : len(tokens) - 1]
            logprobs = torch.log_softmax(logits, -1)
            best = logprobs.topk(2, -1)
            own = logprobs.gather(1, torch.tensor(tokens[first:])[:, None])[:, 0]
            gap = best.values[:, 0] - best.values[:, 1]
            rows.append({"argmax": best.indices[:, 0].tolist(), "logprobs": own.tolist(), "gap": gap.tolist()})
        out.append(rows)
    return out


if __name__ == "__main__":
    json.dump(score(json.load(sys.stdin)), sys.stdout)
