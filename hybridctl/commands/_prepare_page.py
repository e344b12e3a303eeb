"""What ``hybridctl prepare`` shows: the plan, what was changed and why, the lines to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridctl.output import Output
    from hybridctl.patchers.plan import Plan


def show(out: Output, plan: Plan, state: str, diffs: bool = False) -> None:
    """``state``: what was done; ``diffs``: whether the texts that are written are shown."""
    from hybridctl.patchers.loading import shown

    names = shown(plan.load.names, plan.source.inventory) if plan.load else []
    if out.mode == "json":
        out.json(
            {
                "schema_version": 1,
                "state": state.partition(":")[0],
                "model": plan.source.model,
                "revision": plan.source.revision,
                "folder": str(plan.folder),
                "vllm": plan.versions.vllm,
                "transformers": plan.versions.transformers,
                "routing": plan.routing,
                "injected": plan.routed,
                "summary": plan.words,
                "patches": [
                    {"field": c.field, "path": c.path, "reason": c.reason, "source": list(c.source)}
                    for c in plan.patched.changes
                ],
                "names": [
                    {**rule.model_dump(mode="json"), "tensors": count, "example": [old, new]}
                    for rule, count, old, new in names
                ],
                "flags": [{"name": f.name, "values": f.values, "reason": f.reason} for f in plan.flags],
                "not_set": [{"flag": flag, "reason": reason} for flag, reason in plan.recipe.others],
                "audit": plan.audit.document() if plan.audit else None,
                "warnings": plan.warnings,
                "files": len(plan.source.files),
                "download_bytes": plan.to_download,
                "diff": "".join(plan.diffs),
                "commands": plan.commands,
            }
        )
        return
    from rich.text import Text

    from hybridctl.doctor.fields import fields, whole
    from hybridctl.output import plain

    rows = [("", Text(plain(plan.words))), ("state", Text(plain(state)))]
    rows += [("patch", Text(plain(f"{c.path}: {c.reason}"))) for c in plan.patched.changes]
    for rule, count, old, new in names:
        told = f"{rule.kind} {rule.shown}: {count} tensors, such as {old} → {new}; {rule.reason}"
        rows.append(("names", Text(plain(told))))
    if plan.audit is not None:
        rows.append(("audit", Text(plain(plan.audit.summary))))
        for fault in plan.audit.faults:
            told = f"{fault.id}: {fault.what}\n{fault.shown}\n{fault.cause}\n{fault.next}"
            rows.append(("fault", Text(plain(told))))
    rows += [("flag", Text(plain(" ".join((f.name, *f.values)) + f"  ({f.reason})"))) for f in plan.flags]
    rows += [("recipe", Text(plain(f"not set: {flag}  ({reason})"))) for flag, reason in plan.recipe.others]
    size = sum(file.size for file in plan.source.files) / 2**30
    rows.append(
        (
            "files",
            Text(
                f"{len(plan.source.files)}, {size:.2f} GiB, {plan.how}; {plan.to_download / 2**30:.2f} GiB to download"
            ),
        )
    )
    rows += [("note", Text(plain(line))) for line in plan.warnings]
    out.show(*fields(rows))
    if diffs:
        for diff in plan.diffs:
            out.show("", *(whole(plain(line)) for line in diff.splitlines()))
    out.show("", *(whole(line, "bold") for line in plan.commands))
