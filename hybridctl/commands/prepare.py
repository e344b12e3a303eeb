"""``hybridctl prepare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hybridctl.commands._options import JsonOption, QuietOption

if TYPE_CHECKING:
    from hybridctl.output import Output
    from hybridctl.overlays import Manifest, NameRule, StoredFlag
    from hybridctl.patchers.audit import Audit
    from hybridctl.patchers.config import Versions
    from hybridctl.patchers.plan import Plan
    from hybridctl.patchers.source import Source
    from hybridctl.runtime.target import Target


def register(app: typer.Typer) -> None:
    app.command("prepare", short_help="Make a checkpoint loadable by the installed vLLM, in a folder of links.")(
        prepare
    )


def prepare(
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="OWNER/NAME on the hub, or the folder of a checkpoint.", show_default=False),
    ] = None,
    revision: Annotated[Optional[str], typer.Option("--revision", help="Branch, tag or commit on the hub.")] = None,  # noqa: UP045
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", metavar="DIR", help="Where the overlay is made; else beside the others."),
    ] = None,
    routing: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--routing", metavar="none|article|FILE", help="hybrid_config to write; else as config.json has it."
        ),
    ] = None,
    materialize: Annotated[
        str, typer.Option("--materialize", metavar="link|hardlink|copy", help="How files get into the overlay.")
    ] = "link",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and the diffs; write nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Remove the overlay; the checkpoint stays.")] = False,
    status: Annotated[bool, typer.Option("--status", help="What is prepared, and what has changed since.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Go on where it does not fit or is not served yet.")] = False,
    gpu: Annotated[Optional[str], typer.Option("--gpu", metavar="NAME", help="GPU that it must fit on.")] = None,  # noqa: UP045
    memory: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--memory", metavar="GIB", help="Memory of one GPU that it must fit in."),
    ] = None,
    tp: Annotated[
        int, typer.Option("--tp", "--tensor-parallel-size", min=1, max=64, help="Tensor-parallel ranks.")
    ] = 1,
    max_model_len: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--max-model-len", min=1, help="Longest request in tokens."),
    ] = None,
    python: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--python", metavar="PATH", help="Interpreter or virtual environment that has vLLM."),
    ] = None,
    vllm: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--vllm", metavar="VERSION", help="vLLM release to prepare for; else the installed one."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a checkpoint loadable and routable: a config.json for the installed vLLM, links to its files, the launch line.

    The checkpoint, the hub's cache and site-packages are not edited. What does not fit is said before anything is downloaded.

    Example: hybridctl prepare Qwen/Qwen3.8-Flash-Next --gpu H200 --tp 4 --dry-run
    """
    from hybridctl.commands._prepare_page import show
    from hybridctl.errors import EXIT_FINDINGS, UsageError
    from hybridctl.output import Output
    from hybridctl.patchers import plan as planning

    out = Output("quiet" if quiet else "json" if as_json else "human")
    if materialize not in ("link", "hardlink", "copy"):
        raise UsageError(f"--materialize: {materialize[:40]!r} is none of link, hardlink, copy")
    if status:
        _status(out, model or "", output, python)
        return
    if model is None:
        raise UsageError("no MODEL given", "hybridctl prepare OWNER/NAME, or hybridctl prepare --status")
    folder = (output.absolute() if output else planning.default_folder(model, routing)).resolve()
    if undo:
        _undo(out, model, folder, output)
        return
    versions, target, notes = _versions(python, vllm)
    found = _found(model, revision)
    plan = planning.make(found, versions, routing, folder, materialize, force, tp)  # type: ignore[arg-type]
    if target is not None:
        plan.plugins = target.allowlist(None)
    plan.warnings += notes
    plan.audit, rules = _audit(plan, target, tp)
    plan.rename(rules)
    plan.take_flags(_fit(out, plan, gpu, memory, tp, max_model_len, force))
    _refuse_strange(folder)
    wrong = plan.audit.stops and not force
    if dry_run or wrong:
        state = "dry run: nothing was written" if dry_run else "refused: the audit found faults; --force goes on"
        show(out, plan, state, diffs=dry_run)
        if wrong:
            raise typer.Exit(EXIT_FINDINGS)
        return
    _write(out, plan, revision)


def _found(model: str, revision: str | None) -> Source:
    """The checkpoint. Of a folder that can't be read through, all that its files show is told, not the first fault alone."""
    from hybridctl.errors import HybridctlError, UsageError
    from hybridctl.patchers import source as sources
    from hybridctl.patchers.audit import told_of_files

    try:
        return sources.find(model, revision)
    except HybridctlError as error:
        told = told_of_files(Path(model)) if Path(model).is_dir() else ""
        if not told:
            raise
        raise UsageError(f"{error}; audit: {told}", error.hint) from error


def _versions(python: str | None, vllm: str | None) -> tuple[Versions, Target | None, list[str]]:
    """What the overlay is for: as told, else what is installed, else the newest release that is known."""
    from hybridctl.errors import UsageError
    from hybridctl.fit.rules import NEWEST
    from hybridctl.patchers.config import Versions
    from hybridctl.runtime.target import look
    from hybridctl.versions import parse_version

    if vllm is not None and parse_version(vllm) is None:
        raise UsageError(f"--vllm: {vllm[:40]!r} is no release", "--vllm 0.32.0")
    try:
        target = look(python)
    except UsageError:
        if python is not None:
            raise
        told = vllm or NEWEST
        note = (
            "" if vllm else f"there is no vLLM here: prepared for {told}; --python PATH or --vllm VERSION names another"
        )
        return Versions(told), None, [note] if note else []
    if vllm is not None:
        return Versions(vllm), target, []
    return Versions(target.version.partition("+")[0], target.transformers), target, []


def _audit(plan: Plan, target: Target | None, tp: int) -> tuple[Audit, tuple[NameRule, ...]]:
    """Files, names and shapes against what will read them, before anything is downloaded, and the rules for names that they need.
    The installed vLLM is asked only where it is the release that is prepared for."""
    from hybridctl.patchers.audit import OTHER_QUANT_FILES, audit_prepared

    same = target is not None and target.version.partition("+")[0] == plan.versions.vllm
    return audit_prepared(
        plan.patched.after,
        plan.source.inventory,
        plan.versions,
        plan.source.model,
        tp,
        folder=plan.source.folder,
        other_quant_file=any(file.name in OTHER_QUANT_FILES for file in plan.source.files),
        python=target.python if target is not None and same else None,
        environ={"HYBRIDCTL_PLUGIN": "1", "VLLM_PLUGINS": plan.plugins} if plan.routed else None,
    )


def _fit(
    out: Output, plan: Plan, gpu: str | None, memory: float | None, tp: int, length: int | None, force: bool
) -> list[StoredFlag]:
    """Whether it fits, and the flags that it needs for that. Without a GPU, named or here, the question is left open."""
    from hybridctl.commands.fit import _answer, _memory
    from hybridctl.errors import EXIT_FINDINGS, UsageError
    from hybridctl.fit.caches import Flags
    from hybridctl.fit.estimate import Question
    from hybridctl.fit.rules import batch_defaults, rules_for
    from hybridctl.fit.source import found_of
    from hybridctl.fit.weights import Ranks
    from hybridctl.model.config import read_config
    from hybridctl.patchers.plan import flags_of

    given = [(f"--tensor-parallel-size {tp}", "as you gave it")] if tp > 1 else []
    given += [(f"--max-model-len {length}", "as you gave it")] if length else []
    try:
        card = _memory(gpu, memory)
    except UsageError:
        if gpu is not None or memory is not None:
            raise
        plan.warnings.append("fit: not asked, there is no GPU here; --gpu NAME asks for one")
        return flags_of(given)
    found = found_of(plan.source.model, read_config(plan.source.config), plan.source.inventory, "", [])
    own = found.subject.config.max_position_embeddings
    rules = rules_for(plan.versions.vllm)
    tokens, seqs = batch_defaults(card.high / 2**30, card.name)
    flags = Flags(length or own or 8192, tokens, min(seqs, tokens), tensor_parallel_size=tp)
    asked = Question(card, flags, Ranks(tp, 1, False), rules, rules.utilization, rules.ple == "gpu")
    answer = _answer(found, asked, length not in (None, own), ())
    if answer.estimate.verdict in ("does-not-fit", "refused") and not force:
        out.error(answer.summary, "take what fits, or --force")
        raise typer.Exit(EXIT_FINDINGS)
    plan.warnings.append(f"fit: {answer.summary}")
    return flags_of([(flag.flag, flag.reason) for flag in answer.flags] or given)


def _refuse_strange(folder: Path) -> None:
    """A folder that is there and is no overlay is not touched."""
    from hybridctl import overlays
    from hybridctl.errors import UsageError

    if folder.exists():
        try:
            overlays.read_manifest(folder)
        except overlays.OverlayError as error:
            raise UsageError(f"{folder} is there, and hybridctl did not make it: {error}", "--output DIR") from error


def _write(out: Output, plan: Plan, revision: str | None) -> None:
    from hybridctl import overlays
    from hybridctl.commands._prepare_page import show
    from hybridctl.patchers import ledger, overlay

    with overlay.locked(plan.folder) as draft:
        for line in overlay.recover(plan.folder):
            out.note(f"note: {line}")
        plan.source = _download(out, plan, revision)
        present = _present(plan.folder)
        if present is not None and present.model != plan.source.model:
            _taken(plan, present)
        now = (plan.source, plan.versions, plan.routing, plan.how)
        if present is not None and ledger.up_to_date(present, plan.folder, *now, plan.texts, plan.flags, plan.load):
            show(out, plan, "unchanged: it was prepared like this before")
            return
        overlay.fill(draft, plan.source.files, plan.texts, plan.how)
        patches = [f"{change.path}: {change.reason}" for change in plan.patched.changes]
        made = ledger.manifest(draft, *now, patches, plan.flags, plan.words, plan.load)
        overlay.write(draft / overlays.MANIFEST, made.text())
        overlay.publish(draft, plan.folder)
    show(out, plan, f"prepared: {plan.folder}")


def _present(folder: Path) -> Manifest | None:
    from hybridctl import overlays

    return overlays.read_manifest(folder) if folder.is_dir() else None


def _taken(plan: Plan, present: Manifest) -> None:
    from hybridctl.errors import UsageError

    raise UsageError(f"{plan.folder} was prepared from another model, {present.model}", "--output DIR")


def _download(out: Output, plan: Plan, revision: str | None) -> Source:
    """The source with all files on the disk. Progress goes to stderr: a bar on a terminal, else a line a file."""
    from hybridctl.patchers import download

    download.check_disk(plan.source, plan.folder, plan.how)
    missing = plan.source.missing
    if not missing:
        return plan.source
    total = sum(file.size for file in plan.source.files)
    out.note(f"downloading {len(missing)} files, {plan.to_download / 2**30:.2f} GiB, into {download.cache()}")
    with out.progress(plan.source.model, total) as bar:

        def told(size: int, whole: str) -> None:
            bar(size, f"{whole} is there" if whole else "")

        return download.fetch(plan.source, revision, told)


def _undo(out: Output, model: str, folder: Path, output: Path | None) -> None:
    from hybridctl.errors import UsageError
    from hybridctl.patchers import ledger, overlay

    folders = {folder} if output else {each.folder for each in ledger.matching(model, None)} | {folder}
    if len([f for f in folders if f.exists()]) > 1:
        names = ", ".join(sorted(f.name for f in folders if f.exists()))
        raise UsageError(f"several overlays are made from {model}: {names}", "hybridctl prepare NAME --undo")
    lines = [line for each in sorted(folders) for line in overlay.undo(each)]
    if out.mode == "json":
        out.json({"schema_version": 1, "state": "undone" if lines else "nothing to undo", "removed": lines})
        return
    out.show(*(lines or [f"nothing is prepared from {model}"]))


def _status(out: Output, model: str, output: Path | None, python: str | None) -> None:
    from hybridctl.errors import EXIT_FINDINGS
    from hybridctl.patchers import ledger

    versions, target, _ = _versions(python, None)
    rows = []
    for each in ledger.matching(model, output):
        rows.append((each, ledger.drift(each, versions if target is not None else None)))
    if out.mode == "json":
        from hybridctl.runtime.choice import row

        out.json({"schema_version": 1, "prepared": [{**row(each), "drift": lines} for each, lines in rows]})
    else:
        from rich.text import Text

        from hybridctl.doctor.fields import fields
        from hybridctl.output import plain

        shown = []
        for each, lines in rows:
            about = (
                f"{each.manifest.model}, routing {each.manifest.routing}, vLLM {each.manifest.vllm}"
                if each.manifest
                else ""
            )
            shown.append(
                (each.name, Text(plain(f"{about}: {'; '.join(lines) or 'as it was made'}".removeprefix(": "))))
            )
        out.show(*(fields(shown) or ["nothing is prepared"]))
    if any(lines for _, lines in rows):
        raise typer.Exit(EXIT_FINDINGS)
