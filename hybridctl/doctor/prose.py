"""The Markdown of runbooks on a terminal.

rich has a Markdown of its own. It folds commands, which are for copying, and breaks Chinese, which has no spaces, at the few
places where Latin words stand. Runbooks use little of Markdown: headings, paragraphs, lists, code blocks, `code`, **strong** and
links.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from hybridctl.doctor.fields import whole

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>[^*]+)\*\*|\[(?P<label>[^\]]+)\]\((?P<target>[^)]+)\)")
_ITEM = re.compile(r"(?P<indent> *)(?P<mark>[-*]|\d+\.) +")
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]+\)")
# Never at the start of a line, never at its end; besides them Chinese breaks between any two characters.
_NOT_FIRST = frozenset("，。；：！？、）》」』】”’…,.;:!?)]}%")
_NOT_LAST = frozenset("（《「『【“‘([{")


def as_text(markdown: str) -> str:
    """For a pipe or a file: the Markdown as it is, but links between our own files become plain names."""
    return _LINK.sub(r"\1", markdown)


def as_terminal(markdown: str) -> list[RenderableType]:
    """For a terminal. Code blocks are printed whole, everything else is wrapped to the width."""
    out: list[RenderableType] = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        out += _prose(markdown[end : fence.start()])
        style = "green" if fence["info"].startswith("console") else "yellow"
        for line in fence["body"].splitlines():
            command = fence["info"].startswith("console") and not line.startswith("$ ")
            out.append(whole("    " + line, style="dim" if command else style))
        out.append("")
        end = fence.end()
    return out + _prose(markdown[end:])


def _prose(markdown: str) -> list[RenderableType]:
    out: list[RenderableType] = []
    for block in re.split(r"\n{2,}", markdown.strip("\n")):
        if not block.strip():
            continue
        if heading := re.match(r"#+ +", block):
            out.append(Wrapped(_inline(block[heading.end() :], "bold underline")))
        else:
            out += _items(block)
        out.append("")
    return out


def _items(block: str) -> list[RenderableType]:
    """A paragraph, or the items of a list with what belongs to each."""
    parts: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if item := _ITEM.match(line):
            mark = "•" if item["mark"] in "-*" else item["mark"]
            parts.append((f"{item['indent']}{mark} ", [line[item.end() :]]))
        elif parts:
            parts[-1][1].append(line.strip())
        else:
            parts.append(("", [line]))
    return [Wrapped(_inline(_joined(lines)), first) for first, lines in parts]


def _joined(lines: list[str]) -> str:
    """Lines of the source as one; between two Chinese characters a line break is no blank."""
    text = lines[0]
    for line in lines[1:]:
        wide = bool(text) and bool(line) and _is_wide(text[-1]) and _is_wide(line[0])
        text += line if wide else " " + line
    return text


def _inline(source: str, base: str = "") -> Text:
    text, end = Text(style=base), 0
    for part in _INLINE.finditer(source):
        text.append(source[end : part.start()])
        if part["code"]:
            text.append(part["code"].replace(" ", "\N{NO-BREAK SPACE}"), "cyan")
        elif part["strong"]:
            text.append(part["strong"], "bold")
        elif part["target"].startswith("http"):
            text.append(f"{part['label']} ({part['target']})")
        else:
            text.append(part["label"], "cyan")
        end = part.end()
    return text.append(source[end:])


@dataclass(frozen=True)
class Wrapped:
    """A paragraph that hangs after its mark, broken to the width of the console."""

    text: Text
    first: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.cells import cell_len

        hang = cell_len(self.first)
        lines = self.text.divide(breaks(self.text.plain, max(options.max_width - hang, 4)))
        for number, line in enumerate(lines):
            line.rstrip()
            line.plain = line.plain.replace("\N{NO-BREAK SPACE}", " ")
            head = Text(self.first if number == 0 else " " * hang)
            yield head.append_text(line)


def breaks(text: str, width: int) -> list[int]:
    """Places at which a text is broken so that no line takes more than ``width`` terminal cells."""
    from rich.cells import cell_len

    out: list[int] = []
    start, used = 0, 0
    for begin, end in _units(text):
        unit = cell_len(text[begin:end].rstrip(" "))
        if begin > start and used + unit > width:
            out.append(begin)
            start, used = begin, 0
        while used + cell_len(text[max(begin, start) : end].rstrip(" ")) > width:  # one word wider than a line
            cut = _fit(text, max(begin, start), width)
            out.append(cut)
            start, used = cut, 0
        used += cell_len(text[max(begin, start) : end])
    return out


def _fit(text: str, begin: int, width: int) -> int:
    from rich.cells import cell_len

    end = begin + 1
    while end < len(text) and cell_len(text[begin : end + 1]) <= width:
        end += 1
    last = end
    while last > begin + 1 and text[last : last + 1] in _NOT_FIRST:
        last -= 1
    return last if text[last : last + 1] not in _NOT_FIRST else end


def _units(text: str) -> list[tuple[int, int]]:
    """What stays together: a word with the blanks after it, or one Chinese character with its punctuation."""
    cuts = [0]
    for i in range(1, len(text)):
        before, after = text[i - 1], text[i]
        wide = _is_wide(before) or _is_wide(after)
        if (before == " " != after) or (
            wide and after != " " and after not in _NOT_FIRST and before not in _NOT_LAST and before != " "
        ):
            cuts.append(i)
    return list(zip(cuts, [*cuts[1:], len(text)], strict=True)) if text else []


def _is_wide(character: str) -> bool:
    from rich.cells import cell_len

    return cell_len(character) == 2
