"""The answer for people: verdict first, memory by part as bars, what the caches are, flags with their reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybridctl.fit.document import Answer
from hybridctl.fit.estimate import Estimate
from hybridctl.fit.limits import Sequences, least_budget, state_share
from hybridctl.fit.parts import parts

if TYPE_CHECKING:
    from rich.console import RenderableType

GIB = 2**30
_STYLES = {
    "fits": "bold green",
    "tight": "bold yellow",
    "does-not-fit": "bold red",
    "refused": "bold red",
    "unknown": "bold yellow",
}
_BAR = 28


def summary(e: Estimate, changes: list[str]) -> str:
    """The verdict in one or two sentences."""
    gpus = f"{e.ranks.world} × {e.memory.name}"
    length = f"{e.flags.max_model_len:,} tokens"
    if e.verdict == "refused":
        return "vLLM refuses this layout: " + "; ".join(e.why) + "."
    if e.verdict == "unknown" or e.caches is None or e.weights is None:
        return "Not known: " + "; ".join(e.why) + "."
    if e.verdict == "fits":
        return f"Fits on {gpus} with requests of up to {length}: {e.caches.concurrency(e.planned):.1f} of them at once."
    needs = f"{e.weights.gpu / GIB:.1f} GiB of weights and {e.caches.need(e.flags.max_model_len) / GIB:.1f} GiB for one request"
    if e.verdict == "tight":
        start = (
            f"May fit on {gpus} with {length}, or not: it needs {needs} a GPU, and the rest is known as a range only."
        )
    else:
        left = max(0, e.pool.high) / GIB
        start = (
            f"Does not fit on {gpus} with {length}: it needs {needs} a GPU; at most {left:.1f} GiB are left for caches."
        )
    return start + (f" This does: {changes[0]}." if changes else " No change that was tried makes it fit.")


def page(answer: Answer, verbose: bool = False) -> list[RenderableType]:
    """All parts of the page."""
    from rich.text import Text

    from hybridctl.doctor.fields import Row, fields, whole

    e = answer.estimate
    subject = answer.found.subject
    head = [
        e.verdict.replace("-", " ").upper(),
        subject.name,
        f"{e.ranks.world} × {e.memory.name}",
        f"vllm {e.rules.version}",
    ]
    shown: list[RenderableType] = [Text.assemble((head[0], _STYLES[e.verdict]), "  " + " · ".join(head[1:])), ""]
    shown += [Text(answer.summary), ""]
    if e.weights is not None and e.overhead is not None:
        shown += [*_bars(e), ""]
    rows: list[Row] = [("layers", Text(_layers(answer)))]
    rows += [(label, Text(text)) for label, text in _facts(answer, verbose)]
    shown += fields(rows)
    if answer.flags:
        shown += ["", Text("flags", style="bold")]
        flags: list[Row] = []
        for flag in answer.flags:
            flags += [("", whole(flag.flag, style="green")), ("", Text("  " + flag.reason, style="dim"))]
        shown += fields(flags, gap=0)
    if e.verdict in ("fits", "tight") and answer.command:
        shown += ["", whole(answer.command, style="green")]
    if answer.changes:
        shown += ["", Text("what fits", style="bold"), *(Text(f"  - {c.text}") for c in answer.changes)]
    if answer.notes:
        shown += ["", *(Text("note: " + note, style="dim") for note in answer.notes)]
    return shown


def _bars(e: Estimate) -> list[RenderableType]:
    """A bar a part, all on the scale of one GPU."""
    from rich.table import Table
    from rich.text import Text

    from hybridctl.doctor.fields import Roomy

    whole = (e.memory.low + e.memory.high) / 2
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        table.add_column(no_wrap=True)
    for part in parts(e):
        filled = round(_BAR * max(0, part.middle) / whole) if whole else 0
        filled = min(_BAR, max(filled, 1 if part.middle > 0 else 0))
        bar = Text("█" * filled, style=part.style) + Text("·" * (_BAR - filled), style="dim")
        table.add_row(Text(part.name), bar, Text(part.amount), Text(part.note, style="dim"))
    return [Roomy(table, 60)]


def _layers(answer: Answer) -> str:
    plan = answer.found.subject.plan
    counts: dict[str, int] = {}
    for layer in plan.layers:
        counts[layer.kind] = counts.get(layer.kind, 0) + 1
    experts = sum(layer.moe is True for layer in plan.layers)
    text = ", ".join(f"{n} {kind}" for kind, n in counts.items())
    return (
        text
        + (f"; {experts} with experts" if experts else "")
        + (f"  (from {plan.read_from})" if plan.read_from else "")
    )


def _facts(answer: Answer, verbose: bool) -> list[tuple[str, str]]:
    e, made = answer.estimate, answer.estimate.caches
    if made is None:
        return []
    rows = [("block", _block(answer))]
    text = f"{made.token_bytes / 1024:.1f} KiB on each GPU"
    if made.state_bytes:
        text += f"; a state of a sequence {made.state_bytes / 2**20:.1f} MiB, up to {made.state_sets} of them a request"
    rows.append(("a token", text))
    if verbose:
        for group in made.grouping.groups:
            kinds = " + ".join(dict.fromkeys(s.kind for s in group.specs))
            blocks = group.blocks(made.flags.max_model_len, made.launch)
            rows.append(
                (
                    "group",
                    f"{len(group.specs)} × {kinds}, blocks of {group.first.block} tokens, {blocks} blocks a request",
                )
            )
    if e.planned > 0:
        low, high = made.blocks(max(0, e.pool.low)), made.blocks(max(0, e.pool.high))
        size, idle = made.grouping.block_bytes / 2**20, made.idle
        rows.append(("pool", f"{low:,} to {high:,} blocks of {size:.2f} MiB; {idle:.1%} of a request is padding"))
        logged, most = made.tokens(e.planned), made.flags.max_model_len
        rows.append(
            (
                "log line",
                f'vLLM will print about "GPU KV cache size: {logged:,} tokens": that is {made.concurrency(e.planned):.2f} requests '
                f"x {most:,} tokens, not a number of slots",
            )
        )
        rows += [
            (
                "at once" if i == 0 else "",
                f"{c.concurrency:,.1f} requests of {c.tokens:,} tokens ({c.gib:.2f} GiB each)",
            )
            for i, c in enumerate(answer.contexts)
        ]
    if answer.sequences and e.planned > 0:
        rows.append(("max seqs", _sequences(answer.sequences, made.flags.max_num_seqs)))
    budget, why = least_budget(made)
    rows.append(("min budget", f"--max-num-batched-tokens {budget}: {why}"))
    if answer.gain:
        share = state_share(made, made.flags.max_model_len)
        rows.append(
            (
                "fp8 KV",
                f"{answer.gain.factor:.2f} × the requests of full length, block {answer.gain.block_size}"
                + (f" (states take {share:.0%} of a request's blocks)" if share else ""),
            )
        )
    rows.append(("TP sizes", " ".join(map(str, answer.sizes)) or "none of the usual ones divides"))
    if answer.routing:
        rows.append(("routing", _routing(answer)))
    return rows


def _sequences(s: Sequences, asked: int) -> str:
    if s.start is None:
        return f"{min(s.safe, asked)} is safe" if s.safe < asked else f"the {asked} that were counted with are safe"
    start = f"vLLM refuses more than {s.start} with full graphs (a state block each)"
    return f"{s.safe} is safe; {start}, and beyond {s.short} even short requests preempt each other"


def _block(answer: Answer) -> str:
    made = answer.estimate.caches
    if made is None:
        return ""
    if made.alignment is None:
        return f"{made.block_size} tokens"
    padding = f"the state is padded by {made.alignment.padding:.2%}"
    return f"{made.block_size} tokens, so that a page holds one state; {padding}; mode {made.mode}"


def _routing(answer: Answer) -> str:
    made = answer.routing
    if made is None:
        return ""
    length = answer.estimate.flags.max_model_len
    if length <= made.pages_end:
        return f"nothing is saved up to {made.pages_end} tokens: until there every head keeps pages"
    heads = (
        f"{made.linear_heads} of {made.linear_heads + made.flash_heads} KV heads are linear from token {made.pages_end}"
    )
    live, flash = made.live(length) / 2**20, made.flash_only(length) / 2**20
    text = f"{heads}: {length:,} tokens keep {live:.1f} MiB instead of {flash:.1f} ({made.ratio(length):.2f} ×)"
    if made.padding > 0.001:
        text += f"; the unequal groups leave {made.padding:.0%} of the pool unused"
    if made.block_factor > 1:
        text += f"; the smaller group's blocks are {made.block_factor} × as long"
    return text
