"""Draws an answer as SVG (or HTML around it): memory of one GPU by part, and requests at once by their length.

Written by hand, so that nothing has to be installed; a PNG needs matplotlib.
"""

from __future__ import annotations

import importlib.util
from html import escape
from pathlib import Path

from hybridctl.errors import UsageError
from hybridctl.fit.document import Answer
from hybridctl.fit.limits import AtContext
from hybridctl.fit.parts import Part, parts

GIB = 2**30
_WIDTH, _BAR_LEFT, _BAR_WIDTH, _ROW = 860, 150, 430, 26
_COLOURS = {"blue": "#4269d0", "yellow": "#efb118", "green": "#3ca951", "red": "#d1495b", "bright_black": "#b5b8bd"}
_FONT = 'font-family="system-ui, sans-serif"'


def write_plot(answer: Answer, where: str) -> None:
    """Write the plot.

    Args:
        where: a file that ends in .svg, .html, or .png where matplotlib is installed.

    Raises:
        UsageError: another ending, a PNG without matplotlib, or the file can't be written.
    """
    path = Path(where)
    kind = path.suffix.lower()
    if kind == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot: a PNG needs matplotlib, which is not installed", f"--plot {path.with_suffix('.svg')}")
    if kind not in (".svg", ".html", ".png"):
        raise UsageError(f"--plot: {path.name[:60]!r} ends in none of .svg, .html, .png", "--plot fit.svg")
    try:
        if kind == ".png":
            _png(answer, path)
        else:
            drawn = svg(answer)
            path.write_text(drawn if kind == ".svg" else _html(answer, drawn), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--plot: can't write {where}: {error.strerror or error}", "choose another folder") from error


def svg(answer: Answer) -> str:
    """The drawing, with a title and a text for every number (it is read without colours too)."""
    rows, points = parts(answer.estimate), answer.contexts
    top = 76
    chart_top = top + _ROW * len(rows) + 56
    height = chart_top + (220 if points else 0)
    title = f"{answer.found.subject.name} on {answer.estimate.ranks.world} × {answer.estimate.memory.name}"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"',
        f' role="img" {_FONT}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(20, 30, title, 17, weight="bold"),
        _text(20, 52, answer.summary[:130], 12),
    ]
    whole = (answer.estimate.memory.low + answer.estimate.memory.high) / 2
    for i, part in enumerate(rows):
        out += _bar(part, top + i * _ROW, whole)
    if points:
        out += _chart(points, chart_top)
    return "\n".join([*out, "</svg>"]) + "\n"


def _bar(part: Part, y: int, whole: float) -> list[str]:
    scale = _BAR_WIDTH / whole if whole else 0.0
    sure = min(_BAR_WIDTH, max(0.0, part.low * scale))
    most = min(_BAR_WIDTH, max(0.0, part.high * scale))
    colour = _COLOURS[part.style]
    return [
        _text(_BAR_LEFT - 10, y + 15, part.name, 12, anchor="end"),
        f'<rect x="{_BAR_LEFT}" y="{y + 3}" width="{_BAR_WIDTH}" height="16" fill="#f0f1f3"/>',
        f'<rect x="{_BAR_LEFT}" y="{y + 3}" width="{most:.1f}" height="16" fill="{colour}" fill-opacity="0.4"/>',
        f'<rect x="{_BAR_LEFT}" y="{y + 3}" width="{sure:.1f}" height="16" fill="{colour}"/>',
        _text(_BAR_LEFT + _BAR_WIDTH + 12, y + 15, part.amount, 12),
    ]


def _chart(points: list[AtContext], top: int) -> list[str]:
    """Columns: requests at once for each length."""
    most = max(p.concurrency for p in points) or 1.0
    step = min(140, (_WIDTH - 80) // len(points))
    out = [_text(20, top, "requests at once, all of them so long", 13, weight="bold")]
    for i, point in enumerate(points):
        x, size = 60 + i * step, max(1.0, 130 * point.concurrency / most)
        y = top + 165 - size
        out += [
            f'<rect x="{x}" y="{y:.1f}" width="{step - 40}" height="{size:.1f}" fill="{_COLOURS["green"]}"/>',
            _text(x + (step - 40) / 2, y - 5, f"{point.concurrency:,.1f}", 12, anchor="middle"),
            _text(x + (step - 40) / 2, top + 183, f"{point.tokens:,} tokens", 12, anchor="middle"),
        ]
    return out


def _text(x: float, y: float, text: str, size: int, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="#1f2328">'
        f"{escape(text)}</text>"
    )


def _html(answer: Answer, drawn: str) -> str:
    flags = "".join(f"<tr><td><code>{escape(f.flag)}</code></td><td>{escape(f.reason)}</td></tr>" for f in answer.flags)
    table = f"<h2>Flags</h2><table>{flags}</table>" if flags else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in answer.notes)
    command = f"<pre>{escape(answer.command)}</pre>" if answer.command else ""
    name = escape(answer.found.subject.name)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        "<style>body{font-family:system-ui,sans-serif;max-width:880px;margin:2em auto}"
        "td{padding:2px 12px 2px 0;vertical-align:top}</style>"
        f"{drawn}{table}{command}<ul>{notes}</ul></html>\n"
    )


def _png(answer: Answer, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = parts(answer.estimate)
    figure, axes = pyplot.subplots(figsize=(9, 0.4 * len(rows) + 1.5))
    axes.barh(
        [p.name for p in rows][::-1],
        [max(0.0, p.middle) / GIB for p in rows][::-1],
        color=[_COLOURS[p.style] for p in rows][::-1],
    )
    axes.set_xlabel("GiB on one GPU")
    axes.set_title(answer.found.subject.name)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
