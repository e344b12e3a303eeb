"""``hybridctl kernels``: build the linear-attention kernels, list what is built, check them on this machine's GPU."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hybridctl.commands._options import JsonOption

if TYPE_CHECKING:
    from rich.table import Table

    from hybridctl.kernels.build import Built

CHECK_SECONDS = 900


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command("build", short_help="Compile the kernels for a GPU architecture.")(build)
    group.command("list", short_help="List the builds that are kept.")(list_)
    group.command("check", short_help="Compare the kernels with the reference on this machine's GPU.")(check)
    app.add_typer(
        group, name="kernels", short_help="Build, list and check the linear-attention kernels.", help=group_help()
    )


def group_help() -> str:
    return (
        "Build, list and check the linear-attention kernels. They are compiled without fast-math, with nvcc or NVRTC."
    )


def build(
    arch: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--arch", metavar="sm_NN", help="Architecture; else the one of this machine's GPU."),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("-o", "--output", metavar="FILE", help="Copy the PTX there as well."),
    ] = None,
    head_size: Annotated[int, typer.Option("--head-size", help="Size of a head.")] = 128,
    feature_size: Annotated[
        int | None, typer.Option("--feature-size", help="Features of the map; else the head size, unprojected.")
    ] = None,
    value_size: Annotated[int | None, typer.Option("--value-size", help="Size of a value; else the head size.")] = None,
    group: Annotated[int, typer.Option("--group", help="Query heads that share a key/value head.")] = 4,
    block_size: Annotated[int, typer.Option("--block-size", help="Tokens a page of the K/V cache.")] = 16,
    dtype: Annotated[str, typer.Option("--dtype", help="bfloat16 or float16.")] = "bfloat16",
    flag: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--flag", metavar="FLAG", help="Further flag for the compiler; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compile the kernels to PTX and to machine code, and keep both. A build that is kept is not made again.

    Fast-math is refused, in flags and in variables, and looked for in the PTX.

    Example: hybridctl kernels build --arch sm_80 -o linear_attention.ptx
    """
    from hybridctl.kernels import build as building
    from hybridctl.kernels import ptx
    from hybridctl.kernels.linear_attention.variant import Variant, room_kib
    from hybridctl.output import Output

    out = Output("json" if as_json else "human")
    target = building.check_arch(arch or _arch_here())
    sizes = (head_size, feature_size or head_size, value_size or head_size, group, block_size, dtype)
    variant = Variant(*sizes, projected=feature_size is not None, room_kib=room_kib(target))
    with out.status(f"compiling for {target}") or nullcontext():
        built = building.build(variant, target, flags=tuple(flag or ()))
    if output is not None:
        _copy(built, output)
    defines = [f"-D{name}={value}" for name, value in variant.macros().items()]
    where = str(building.SOURCES / building.MAIN)
    line = building.nvcc_line("nvcc", target, [*defines, *(flag or ())], where, str(output or "linear_attention.ptx"))
    text = built.ptx.read_text(encoding="utf-8")
    isa = ptx.isa(text)
    if as_json:
        out.json(
            {
                "schema_version": 1,
                "arch": target,
                "ptx": str(built.ptx),
                "cubin": str(built.cubin) if built.cubin else None,
                "ptx_isa": list(isa) if isa else None,
                "entries": list(ptx.entries(text)),
                "compiler": {"kind": built.compiler.kind, "version": built.compiler.version},
                "fresh": built.fresh,
                "nvcc": line,
            }
        )
        return
    how = f"{built.compiler.kind} {built.compiler.version}"
    out.write(f"{'built' if built.fresh else 'kept from before'}: {target}, {how}, no fast-math in the PTX")
    out.write(f"ptx     {output or built.ptx}" + (f"  (ISA {isa[0]}.{isa[1]})" if isa else ""))
    out.write(f"cubin   {built.cubin or 'none: the driver compiles the PTX when it is loaded'}")
    out.write("by hand " + " ".join(line))


def list_(as_json: JsonOption = False) -> None:
    """List the builds that are kept, oldest name first. They can be deleted at any time."""
    from hybridctl.kernels.build import kept
    from hybridctl.output import Output

    out = Output("json" if as_json else "human")
    rows = kept()
    if as_json:
        out.json({"schema_version": 1, "builds": [{"folder": str(folder), **told} for folder, told in rows]})
    elif not rows:
        out.write("nothing is built yet: hybridctl kernels build --arch sm_90")
    else:
        out.show(_builds(rows))


def check(
    python: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--python", metavar="PATH", help="Interpreter that has torch for this GPU and hybridctl."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare every kernel with the reference in float64, on fresh random inputs, on this machine's GPU.

    Exit code 1 if one is further off than it may be.
    """
    from hybridctl.errors import EXIT_FINDINGS
    from hybridctl.output import Output

    out = Output("json" if as_json else "human")
    with out.status("comparing on the GPU; the first time the kernels are compiled") or nullcontext():
        told = _checked(python)
    bad = [r for r in told["results"] if not r["error"] <= r["limit"]]
    if as_json:
        out.json(told)
    else:
        out.show(_errors(told))
        verdict = f"{len(bad)} of {len(told['results'])} comparisons are off" if bad else "all are right"
        out.write(f"{told['gpu']}, {' '.join(told['compiler'])}: {verdict}")
        for form, times in told["microseconds"].items():
            out.write(f"{form}: " + ", ".join(f"{name} {value} µs" for name, value in times.items()))
    if bad:
        raise typer.Exit(EXIT_FINDINGS)


def _arch_here() -> str:
    from hybridctl.doctor.facts.local_machine import this_machine
    from hybridctl.doctor.facts.local_nvml import gpu_source
    from hybridctl.doctor.facts.model import Fact
    from hybridctl.errors import UsageError

    told = {f.key: f.value for f in gpu_source(this_machine()) if isinstance(f, Fact)}
    capability = told.get("gpu.cc")
    first = capability[0] if isinstance(capability, list) and capability else capability
    if not first:
        raise UsageError(
            "no GPU was found here, so the architecture must be named", "hybridctl kernels build --arch sm_90"
        )
    return "sm_" + str(first).replace(".", "")


def _copy(built: Built, output: Path) -> None:
    from hybridctl.errors import UsageError

    try:
        output.write_bytes(built.ptx.read_bytes())
    except OSError as error:
        raise UsageError(f"--output: can't write {output}: {error.strerror}") from error


def _checked(python: str | None) -> dict[str, Any]:
    import json
    import subprocess
    import sys

    from hybridctl.errors import HybridctlError

    line = [python or sys.executable, "-m", "hybridctl.kernels.linear_attention.check"]
    again = "hybridctl kernels check --python PATH (of an environment with torch for this GPU and hybridctl[kernels])"
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=CHECK_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise HybridctlError(f"the check did not end within {CHECK_SECONDS} s", again) from error
    except OSError as error:
        raise HybridctlError(f"{line[0]} can't be started: {error.strerror}", again) from error
    if done.returncode:
        said = [x for x in done.stderr.strip().splitlines() if x.strip()] or ["it said nothing"]
        raise HybridctlError(f"the check failed: {said[-1].strip()[:300]}", again)
    told = json.loads(done.stdout)
    return dict(told)


def _builds(rows: list[tuple[Path, dict[str, object]]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("arch", "sizes", "compiler", "folder"):
        table.add_column(title, overflow="fold")
    for folder, told in rows:
        macros = told.get("macros")
        sizes = " ".join(f"{k.lower()} {v}" for k, v in macros.items()) if isinstance(macros, dict) else "unreadable"
        compiler = told.get("compiler")
        by = " ".join(map(str, compiler)) if isinstance(compiler, list) else str(told.get("problem", ""))
        table.add_row(str(told.get("arch", "")), sizes, by, str(folder))
    return table


def _errors(told: dict[str, Any]) -> Table:
    from rich.table import Table

    worst: dict[tuple[str, str], tuple[float, float]] = {}
    for row in told["results"]:
        name = (row["form"], row["kernel"])
        error = row["error"]
        before = worst.get(name, (0.0, row["limit"]))[0]
        worst[name] = (error if not error <= before else before, row["limit"])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("sizes", "kernel", "largest error", "allowed", ""):
        table.add_column(title, justify="right" if "error" in title or title == "allowed" else "left")
    for (form, kernel), (error, limit) in worst.items():
        table.add_row(form, kernel, f"{error:.1e}", f"{limit:.0e}", "" if error <= limit else "WRONG")
    return table
