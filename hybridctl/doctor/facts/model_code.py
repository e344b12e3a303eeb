"""Python files beside a config.json, read as text: which modules of vLLM they import. Nothing of them is executed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from hybridctl.doctor.facts.local_read import printable, regular_bytes
from hybridctl.doctor.facts.model import Fact, Origin

MAX_FILES = 40
MAX_BYTES = 1 << 20
MAX_IMPORTS = 20
# At the beginning of a line, so that a word in a comment or in a longer name is none.
_FROM = re.compile(
    r"^[ \t]*from[ \t]+(vllm(?:\.\w+)*)[ \t]+import[ \t]+\(?[ \t]*(\w+(?:[ \t]*,[ \t]*\w+)*)?", re.MULTILINE
)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+(vllm\.\w+(?:\.\w+)*)", re.MULTILINE)


def code_facts(folder: Path) -> list[Fact]:
    """The files right in a folder, and one fact for each line that imports from vLLM, in the order of the files.

    Of ``from vllm import a, b`` each name may be a module, and is stated as ``vllm.a``, ``vllm.b``.
    """
    try:
        names = sorted(n for n in os.listdir(folder) if n.endswith(".py"))[:MAX_FILES]  # noqa: PTH208
    except OSError:
        return []
    facts, read = [], []
    for name in names:
        data = regular_bytes(folder / name, MAX_BYTES)
        if isinstance(data, bytes):
            read.append(printable(name))
            facts += [
                Fact("model.vllm_imports", modules, Origin("model", None, f"{printable(name)}:{at}: {line}"))
                for at, line, modules in _imports(data.decode("utf-8", "replace"))
            ]
    if not read:
        return []
    return [Fact("model.code_files", read, Origin("model", None, printable(str(folder)))), *facts[:MAX_IMPORTS]]


def _imports(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Line number, the line, and the modules."""
    found = [
        (m, [f"{m[1]}.{n.strip()}" for n in (m[2] or "").split(",") if n.strip()] or [m[1]])
        for m in _FROM.finditer(text)
    ]
    found += [(m, [m[1]]) for m in _IMPORT.finditer(text)]
    for match, modules in sorted(found, key=lambda pair: pair[0].start()):
        line = text[match.start() :].partition("\n")[0].strip()
        yield text.count("\n", 0, match.start()) + 1, printable(line)[:200], [m[:200] for m in modules]
