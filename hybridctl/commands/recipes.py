"""``hybridctl recipes``: the model families that are known, and one of them in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hybridctl.commands._options import JsonOption

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from hybridctl.model.families import Family


def register(app: typer.Typer) -> None:
    app.command("recipes", short_help="List the known model families, or show one.")(recipes)


def recipes(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="FAMILY|MODEL", help="Id of a family, or a model's name.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the known model families, or show one: layers, first and last releases, flags with their reasons.

    Example: hybridctl recipes Qwen/Qwen3.8-Flash-Next
    """
    from dataclasses import asdict

    from hybridctl.errors import UsageError
    from hybridctl.model.families import family, load_families
    from hybridctl.model.identify import identify
    from hybridctl.output import Output

    out = Output("json" if as_json else "human")
    if name is None:
        families = load_families()
        if as_json:
            out.json({"schema_version": 1, "families": [asdict(f) for f in families]})
        else:
            out.show(_table(families))
        return
    found = family(name) or identify(name).family
    if found is None:
        raise UsageError(f"no recipe for {name[:80]!r}", "hybridctl recipes")
    if as_json:
        out.json({"schema_version": 1, "family": asdict(found)})
    else:
        out.show(*_page(found))


def _table(families: tuple[Family, ...]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("family", "model", "layers", "vLLM", "transformers"):
        table.add_column(column, overflow="fold", no_wrap=column not in ("model", "layers"))
    for f in families:
        table.add_row(
            f.id, f.title, " + ".join(f.layers), _window(f), f">={f.first_transformers}" if f.first_transformers else ""
        )
    return table


def _window(f: Family) -> str:
    if not f.in_vllm:
        return "none"
    first = f">={f.first_vllm}" if f.first_vllm else ""
    last = f"<={f.last_vllm}" if f.last_vllm else ""
    return ",".join(p for p in (first, last) if p)


def _page(f: Family) -> list[RenderableType]:
    from rich.text import Text

    from hybridctl.doctor.fields import Row, fields, whole

    rows: list[Row] = []

    def row(label: str, *texts: str) -> None:
        rows.extend((label if index == 0 else "", Text(text)) for index, text in enumerate(t for t in texts if t))

    row("layers", " + ".join(f.layers) + (", keeps recurrent state" if f.hybrid else ""))
    row("pattern", f.pattern)
    row("classes", *(a.name + (f", vLLM >={a.first_vllm}" if a.first_vllm else "") for a in f.architectures))
    row("last vLLM", f.last_vllm)
    row("types", ", ".join(f.model_types))
    row("transformers", f">={f.first_transformers}" if f.first_transformers else "")
    for variant in f.variants:
        sizes = ", ".join(f"{quant} {size:g} GiB" for quant, size in variant.size_gib.items())
        row("variant", f"{variant.id}: {sizes}" if sizes else variant.id)
    for flag in f.flags:
        rows.append(("flag", whole(flag.flag, style="green")))
        row("", f"for {flag.when}: {flag.reason}" if flag.when else flag.reason)
    row("notes", *f.notes)
    rows += [("source" if index == 0 else "", whole(source)) for index, source in enumerate(f.source)]
    return [Text.assemble((f.id, "bold cyan"), "  ", (f.title, "bold")), "", *fields(rows)]
