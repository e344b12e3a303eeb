"""``hybridctl fit``: will a model fit on a GPU, with which flags, and for how many users?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from hybridctl.commands._options import JsonOption, QuietOption, VerboseOption

if TYPE_CHECKING:
    from hybridctl.errors import UsageError
    from hybridctl.fit.document import Answer
    from hybridctl.fit.estimate import Memory, Question
    from hybridctl.fit.source import Found
    from hybridctl.gpus import Gpu


def register(app: typer.Typer) -> None:
    app.command("fit", short_help="Will it fit, with which flags, for how many users?")(fit)


def fit(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub name, folder, or config.json.")],
    gpu: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--gpu", metavar="NAME", help="GPU by name (H200, 'RTX 4090', 'A100 80GB'); else this machine's."),
    ] = None,
    memory: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--memory", metavar="GIB", help="Memory of one GPU in GiB, as the driver reports it."),
    ] = None,
    tp: Annotated[
        int, typer.Option("--tp", "--tensor-parallel-size", min=1, max=64, help="Tensor-parallel ranks.")
    ] = 1,
    ep: Annotated[bool, typer.Option("--ep", "--enable-expert-parallel", help="Whole experts on each rank.")] = False,
    dp: Annotated[int, typer.Option("--dp", "--data-parallel-size", min=1, max=64, help="Data-parallel ranks.")] = 1,
    max_model_len: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--max-model-len", min=1, help="Longest request in tokens; else the model's own."),
    ] = None,
    max_num_seqs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--max-num-seqs", min=1, help="Sequences a step; else vLLM's default for the GPU."),
    ] = None,
    max_num_batched_tokens: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--max-num-batched-tokens", min=1, help="Tokens a step; else vLLM's default for the GPU."),
    ] = None,
    block_size: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--block-size", min=1, help="Attention block in tokens, before it is aligned."),
    ] = None,
    kv_cache_dtype: Annotated[
        str, typer.Option("--kv-cache-dtype", help="auto, bfloat16, fp8, fp8_e4m3, fp8_e5m2.")
    ] = "auto",
    ssm_dtype: Annotated[
        str, typer.Option("--mamba-ssm-cache-dtype", help="auto, float32, float16, bfloat16: the recurrent state.")
    ] = "auto",
    cache_mode: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--mamba-cache-mode", help="none, align, or all (until 0.31)."),
    ] = None,
    prefix_caching: Annotated[
        bool, typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", help="Prefix caching.")
    ] = True,
    speculative: Annotated[
        int,
        typer.Option(
            "--speculative", "--mtp", min=0, max=64, help="Draft tokens a step with the model's own MTP head."
        ),
    ] = 0,
    utilization: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--gpu-memory-utilization", min=0.01, max=1.0, help="Share of the memory that vLLM takes."),
    ] = None,
    eager: Annotated[bool, typer.Option("--enforce-eager", help="No CUDA graphs.")] = False,
    table_on_gpu: Annotated[
        bool,
        typer.Option(
            "--ple-on-gpu", help="Keep Qwen4Exp's n-gram table on the GPU (--engram-config cpu_offload false)."
        ),
    ] = False,
    vllm: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--vllm", metavar="VERSION", help="vLLM release whose rules count; else the newest known."),
    ] = None,
    context: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option("--context", min=1, help="Context length to give the concurrency for; may be repeated."),
    ] = None,
    config: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--config", metavar="FILE", help="config.json to use in place of the model's own; '-' for stdin."),
    ] = None,
    headers: Annotated[
        bool, typer.Option("--headers/--no-headers", help="Read the weights' headers (range requests on the hub).")
    ] = True,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the hub.")] = False,
    plot: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--plot", metavar="FILE", help="Write memory by part and concurrency by context as .svg or .html."
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Say in seconds, without weights, whether a model fits, and with which flags.

    The caches are worked out with vLLM's own rules and equal what it computes; what a profile run measures is given as a range.

    Example: hybridctl fit Qwen/Qwen3.6-27B --gpu H200 --max-model-len 262144
    """
    from hybridctl.errors import EXIT_FINDINGS, EXIT_OK
    from hybridctl.fit.caches import Flags
    from hybridctl.fit.estimate import Question
    from hybridctl.fit.rules import NEWEST, batch_defaults, rules_for
    from hybridctl.fit.source import check_name, find
    from hybridctl.fit.weights import Ranks
    from hybridctl.output import Output

    mode: Literal["json", "quiet", "human"] = "json" if as_json else "quiet" if quiet else "human"
    out = Output(mode, verbose)
    if config is None:
        check_name(model)
    card = _memory(gpu, memory)
    found = find(model, offline, config, headers)
    tokens, seqs = batch_defaults(card.high / 2**30, card.name)
    rules = rules_for(vllm or NEWEST)
    flags = Flags(
        max_model_len or found.subject.config.max_position_embeddings or 8192,
        max_num_batched_tokens or tokens,
        max_num_seqs or min(seqs, max_num_batched_tokens or tokens),
        tensor_parallel_size=tp,
        block_size=block_size,
        kv_cache_dtype=_one_of(kv_cache_dtype, _KV_DTYPES, "--kv-cache-dtype"),
        mamba_ssm_cache_dtype=_one_of(ssm_dtype, ("auto", "float32", "float16", "bfloat16"), "--mamba-ssm-cache-dtype"),
        mamba_cache_mode=None
        if cache_mode is None
        else _one_of(cache_mode, ("none", "align", "all"), "--mamba-cache-mode"),
        enable_prefix_caching=prefix_caching and cache_mode != "none",
        num_speculative_tokens=speculative,
        draft_layers=(found.subject.config.mtp_layers or 1) if speculative else 0,
    )
    asked = Question(
        card,
        flags,
        Ranks(tp, dp, ep),
        rules,
        utilization or rules.utilization,
        table_on_gpu or rules.ple == "gpu",
        eager,
        bool(speculative),
    )
    own = found.subject.config.max_position_embeddings
    answer = _answer(found, asked, max_model_len not in (None, own), tuple(context or ()))
    if plot:
        from hybridctl.fit.plot import write_plot

        write_plot(answer, plot)
        out.note(f"wrote {plot}")
    if as_json:
        from hybridctl.fit.document import document

        out.json(document(answer))
    elif not quiet:
        from hybridctl.commands._fit_page import page

        out.show(*page(answer, verbose))
    raise typer.Exit(EXIT_OK if answer.estimate.verdict == "fits" else EXIT_FINDINGS)


_KV_DTYPES = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2")


def _one_of(value: str, allowed: tuple[str, ...], option: str) -> str:
    from hybridctl.errors import UsageError

    if value not in allowed:
        raise UsageError(f"{option}: {value[:40]!r} is none of {', '.join(allowed)}", "hybridctl fit --help")
    return value


def _memory(gpu: str | None, memory: float | None) -> Memory:
    """The GPU in question: by name, by size, or this machine's."""
    import re
    import shlex

    from hybridctl.errors import UsageError
    from hybridctl.fit.estimate import Memory
    from hybridctl.gpus import lookup

    card = lookup(gpu) if gpu else None
    if gpu and card is None and memory is None:
        several = re.fullmatch(r"(\d{1,2}) ?[x×*] ?(\S.*)", gpu.strip())
        if several and lookup(several[2]):
            raise UsageError(
                "--gpu: names one GPU; --tp says over how many the model is spread",
                f"hybridctl fit … --gpu {shlex.quote(several[2])} --tp {several[1]}",
            )
        raise UsageError(f"--gpu: {gpu[:60]!r} is not in the table", "give its memory: --memory GIB")
    name = card.name if card else gpu or (f"{memory:g} GiB" if memory else "")
    unified = bool(card and card.unified)
    if memory is not None:
        if not 0.5 <= memory <= 4096:
            raise UsageError(f"--memory: {memory:g} GiB is no GPU", "nvidia-smi shows MiB; divide by 1024")
        return Memory.exact(memory, name, unified)
    if card is not None:
        if card.memory_gib is None:
            raise _several_sizes(card)
        return Memory.nominal(card.memory_gib, card.name, unified)
    return _local()


def _several_sizes(card: Gpu) -> UsageError:
    """No size is assumed: what fits the larger one may not fit the smaller."""
    from hybridctl.errors import UsageError
    from hybridctl.gpus import variants

    known = variants(card)
    sizes = ", ".join(f"{g.memory_gib:g} GiB ({g.name})" for g in known)
    told = f": {sizes} and maybe others; none is assumed" if known else ", and none is assumed"
    return UsageError(
        f"--gpu: {card.name} is sold in several sizes{told}",
        "hybridctl fit … " + " or ".join([*(f"--gpu '{g.name}'" for g in known), "--memory GIB"]),
    )


def _local() -> Memory:
    """The smallest GPU of this machine, as its driver reports it."""
    from hybridctl.doctor.facts.local_machine import this_machine
    from hybridctl.doctor.facts.local_nvml import gpu_source
    from hybridctl.doctor.facts.model import Fact
    from hybridctl.errors import UsageError
    from hybridctl.fit.estimate import Memory

    told = {f.key: f.value for f in gpu_source(this_machine()) if isinstance(f, Fact)}
    size = told.get("gpu.memory_gib")
    sizes = [float(s) for s in (size if isinstance(size, list) else [size]) if isinstance(s, (int, float))]
    if not sizes:
        raise UsageError("no GPU was found here", "hybridctl fit MODEL --gpu H200, or --memory GIB")
    names = told.get("gpu.names")
    name = names[0] if isinstance(names, list) and names else names
    return Memory.exact(min(sizes), str(name or "GPU of this machine"))


def _answer(found: Found, asked: Question, length_given: bool, wanted: tuple[int, ...]) -> Answer:
    from hybridctl.commands._fit_page import summary
    from hybridctl.fit.advice import changes_that_fit, command, needed_flags
    from hybridctl.fit.document import Answer
    from hybridctl.fit.estimate import estimate
    from hybridctl.fit.limits import contexts, fp8_gain, sequences
    from hybridctl.fit.notes import notes
    from hybridctl.fit.parallel import sizes_that_divide
    from hybridctl.fit.routing import routing

    subject = found.subject
    e = estimate(subject, asked)
    changes = [] if e.verdict in ("fits", "unknown") else changes_that_fit(subject, asked, found.published)
    flags = needed_flags(e, asked, length_given) if e.verdict in ("fits", "tight") else []
    usable = e.caches is not None and e.planned > 0
    width = 1 if asked.flags.kv_cache_dtype.startswith("fp8") else 2
    return Answer(
        found,
        e,
        summary(e, [c.text for c in changes]),
        flags,
        command(subject, flags) if flags or e.verdict == "fits" else "",
        contexts(e.caches, e.planned, wanted) if e.caches is not None and usable else [],
        sequences(e.caches, e.planned) if e.caches is not None and usable else None,
        fp8_gain(e, subject.plan),
        changes,
        routing(subject.config, subject.plan, asked.ranks.tensor, e.caches.block_size if e.caches else 16, width),
        sizes_that_divide(subject.config, subject.plan, subject.quant, asked.ranks.expert_parallel),
        notes(found, e, asked),
    )
