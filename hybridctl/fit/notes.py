"""What must be said beside the figures: what was assumed, where the table lies, which rules were not measured."""

from __future__ import annotations

from hybridctl.fit.estimate import Estimate, Question
from hybridctl.fit.parallel import cautions
from hybridctl.fit.source import Found

GIB = 2**30


def notes(found: Found, e: Estimate, asked: Question) -> list[str]:
    """One line each."""
    lines = list(found.notes)
    subject = found.subject
    if e.weights is not None and e.weights.error:
        lines.append(
            f"the weights were counted from config.json, and may be off by {e.weights.error:.0%}: their headers were not read"
        )
    if e.weights is not None and e.weights.host:
        size = e.weights.host / GIB
        lines.append(
            f"the n-gram table takes {size:.1f} GiB of pinned host memory for each data-parallel rank; WSL2 must allow that much"
        )
    if not e.rules.known:
        lines.append(f"vLLM {e.rules.version} was not looked at: the nearest known rules were used")
    elif not e.rules.measured:
        lines.append(
            f"the rules of vLLM {e.rules.version} were read; those of 0.30.0 and 0.32.0 are compared with vLLM itself"
        )
    if e.memory.unified:
        lines.append("GPU and host share this memory: what the system and other programs hold is not left for vLLM")
    limit = subject.config.max_position_embeddings
    if limit and e.flags.max_model_len > limit:
        lines.append(f"the model's own limit is {limit:,} tokens; longer needs --hf-overrides")
    if e.flags.num_speculative_tokens and not subject.config.mtp_layers:
        lines.append("config.json states no MTP layer: the checkpoint may have no head to draft with")
    if e.flags.mamba_cache_mode == "all" and not e.rules.all_mode:
        lines.append("--mamba-cache-mode all is gone from 0.32 on: align was counted with")
    return lines + cautions(subject.config, asked.ranks, subject.quant)
