"""``hybridctl recipes``: the model families and the pinned sets that are known, and one of them in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hybridctl.commands._options import JsonOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hybridctl.doctor.fields import Roomy
    from hybridctl.doctor.stacks import Stack
    from hybridctl.model.families import Family
    from hybridctl.output import Output


_LEAST = 60
"""Columns of a terminal that the tables need."""


def register(app: typer.Typer) -> None:
    app.command("recipes", short_help="List the known model families and stacks, or show one.")(recipes)


def recipes(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="FAMILY|MODEL|STACK", help="Id of a family or a stack, or a model's name.", show_default=False
        ),
    ] = None,
    stacks: Annotated[bool, typer.Option("--stacks", help="List the pinned sets (stacks) instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the known model families, or show one: layers, first and last releases, flags with their reasons.

    A stack is a pinned set of packages with what it needs; hybridctl doctor --stack NAME judges it.

    Example: hybridctl recipes Qwen/Qwen3.8-Flash-Next
    """
    from dataclasses import asdict

    from hybridctl.errors import UsageError
    from hybridctl.model.families import family, load_families
    from hybridctl.model.identify import identify
    from hybridctl.output import Output

    out = Output("json" if as_json else "human")
    if stacks or _is_stack(name):
        _stacks(out, name, as_json)
        return
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


def _is_stack(name: str | None) -> bool:
    from hybridctl.doctor.stacks import load_stacks

    return name is not None and any(s.id == name for s in load_stacks())


def _stacks(out: Output, name: str | None, as_json: bool) -> None:
    from dataclasses import asdict

    from hybridctl.doctor.stacks import load_stacks, stack

    shown = load_stacks() if name is None else (stack(name),)
    if as_json:
        rows = [{k: v for k, v in asdict(s).items() if k != "places"} for s in shown]
        out.json({"schema_version": 1, "stacks": rows} if name is None else {"schema_version": 1, "stack": rows[0]})
    elif name is None:
        out.show(_stack_table(shown))
    else:
        out.show(*_stack_page(shown[0]))


def _stack_table(stacks: tuple[Stack, ...]) -> Roomy:
    from rich.table import Table

    from hybridctl.doctor.fields import Roomy

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("stack", "what", "driver", "GPU", "Python"):
        table.add_column(column, overflow="fold", no_wrap=column == "stack")
    for s in stacks:
        what = s.title if s.current else f"{s.title} (contradictory)"
        table.add_row(
            s.id, what, f">={s.driver}" if s.driver else "none", f">={s.gpu_from}" if s.gpu_from else "none", s.python
        )
    return Roomy(table, _LEAST)


def _stack_page(s: Stack) -> list[RenderableType]:
    from rich.text import Text

    from hybridctl.doctor.fields import Row, fields, whole
    from hybridctl.model.families import load_families

    rows: list[Row] = [("verdict", Text(s.verdict)), ("", Text(s.summary))]
    rows += [("packages" if not i else "", Text(pin)) for i, pin in enumerate(s.constraints())]
    needs = [f"Python {s.python}", f"glibc >={s.glibc}" if s.glibc else "", " or ".join(s.arch)]
    if s.build == "cuda":
        ptx = f", {s.driver_ptx} where the driver must compile PTX (Blackwell)" if s.driver_ptx else ""
        needs += [f"driver {s.driver}{ptx}", f"compute capability {s.gpu_from} or newer"]
    rows += [("needs" if not i else "", Text(text)) for i, text in enumerate(t for t in needs if t)]
    rows += [("features" if not i else "", Text(text)) for i, text in enumerate(s.features)]
    serves = [f.id for f in load_families() if f.hybrid and f.in_vllm and _holds(f, s)]
    rows.append(("hybrids", Text(", ".join(serves) or "none of the known families")))
    rows += [("source" if not i else "", whole(source)) for i, source in enumerate(s.source)]
    return [Text.assemble((s.id, "bold cyan"), "  ", (s.title, "bold")), "", *fields(rows)]


def _holds(f: Family, s: Stack) -> bool:
    from packaging.version import Version

    first = Version(f.first_vllm) if f.first_vllm else s.vllm
    last = Version(f.last_vllm) if f.last_vllm else s.vllm
    return first <= s.vllm <= last


def _table(families: tuple[Family, ...]) -> Roomy:
    from rich.table import Table

    from hybridctl.doctor.fields import Roomy

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("family", "model", "layers", "vLLM", "transformers"):
        table.add_column(column, overflow="fold", no_wrap=column not in ("model", "layers"))
    for f in families:
        table.add_row(
            f.id, f.title, " + ".join(f.layers), _window(f), f">={f.first_transformers}" if f.first_transformers else ""
        )
    return Roomy(table, _LEAST)


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
