"""Lists of packages: ``pip list``, ``pip freeze``, ``pip show``, ``uv pip list``, ``conda list``, ends of installs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.collect_env import say_conda
from hybridctl.doctor.facts.package_names import is_known
from hybridctl.doctor.facts.statements import Found

_NAME = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_VERSION = r"v?\d+(?:\.\w+)*[\w.+!-]*"
_HEAD = re.compile(
    r"\s*#?\s*(?:Package|Name)\s+Version(?:\s+(?:Build|Editable|Location|Channel|Latest|Installer)\b.*)?\s*$"
)
_RULE = re.compile(r"\s*-{3,}(?:\s+-{2,})*\s*$")
_ROW = re.compile(rf"\s*(_?{_NAME})\s+({_VERSION})(?:\s+(\S.*?))?\s*$")
_FREEZE = re.compile(rf"\s*(?:\+\s+|~\s+)?({_NAME})(?:\[[\w,.-]*\])?\s*===?\s*({_VERSION})\s*(?:;.*|#.*|\\)?$")
_WHEEL = re.compile(rf"\s*({_NAME})\s*@\s*\S*/([\w.]+)-(\d[\w.+!%]*)(?:-\w+)?-[\w.]+-[\w.]+-[\w.]+\.whl")
_INSTALLED = re.compile(r"\s*Successfully installed\s+(.*)")
_INSTALLED_ITEM = re.compile(rf"({_NAME}?)-({_VERSION.replace('-', '')})")
_SHOW_NAME = re.compile(rf"\s*Name:\s*({_NAME})\s*$")
_SHOW_VERSION = re.compile(rf"\s*Version:\s*({_VERSION})\s*$")
_UV = re.compile(r"\s*Using Python (\d+\.\d+\.\d+\S*) environment at:")
_TWO_WORDS = re.compile(rf"\s*(?:[-*•]\s+)?({_NAME})\s+({_VERSION})\s*$")


def parse(lines: Sequence[Line]) -> Found:
    """Rows under a header, ``name==version`` lines, and lone ``name version`` lines of packages that reports are about."""
    found = Found()
    in_table = conda = False
    shown: str | None = None
    above = 0
    for line in lines:
        text = line.text
        in_table = in_table and line.number <= above + 1  # an empty line ends a table
        above = line.number
        if _HEAD.match(text):
            in_table, conda = True, "Build" in text or "Channel" in text or text.lstrip().startswith("#")
            continue
        if in_table and (_RULE.match(text) or text.lstrip().startswith("#")):
            continue
        row = _ROW.match(text)
        if in_table and row:
            if conda:
                say_conda(found, row[1], row[2], (row[3] or "").split(" ")[0], line)
            else:
                found.package(row[1], row[2], line)
            continue
        in_table = False
        if "==" in text and (freeze := _FREEZE.match(text)):
            found.package(freeze[1], freeze[2], line)
        elif ".whl" in text and (wheel := _WHEEL.match(text)):
            found.package(wheel[1], wheel[3].replace("%2B", "+").replace("%2b", "+"), line)
        elif uv := _UV.match(text):
            found.version("platform.python", uv[1], line)
        elif installed := _INSTALLED.match(text):
            for item in installed[1].split():
                if part := _INSTALLED_ITEM.fullmatch(item):
                    found.package(part[1], part[2], line)
        elif name := _SHOW_NAME.match(text):
            shown = name[1]
            continue
        elif shown and (version := _SHOW_VERSION.match(text)):
            found.package(shown, version[1], line)
        elif row and _lone(row, text):
            found.package(row[1], row[2], line)
        shown = None
    return found


def _lone(row: re.Match[str], text: str) -> bool:
    """``pip list | grep torch`` has no header: take a row of two columns if the package is one that reports are about."""
    if not (is_known(row[1]) or row[1] == "Python"):
        return False
    return bool(_TWO_WORDS.match(text)) or bool(
        re.match(rf"\s*{_NAME}(?:\s{{2,}}|\t){_VERSION}(?:\s{{2,}}|\t|$)", text)
    )
