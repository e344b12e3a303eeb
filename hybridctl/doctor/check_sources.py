"""What a check can find, read from its own source: the ids of its findings and their areas stand in no list."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from functools import cache
from types import ModuleType

from hybridctl.doctor import checks
from hybridctl.doctor.checks import Check, discover
from hybridctl.doctor.findings import AREAS

_ID = re.compile(r"[a-z0-9.]+(?:-[a-z0-9.]+)*")
_F_STRING = re.compile(r'f"([^"\n]{4,80})"')
_LEAST = 4
"""Characters of an id that an f-string must state itself."""


def find(name: str) -> Check | None:
    """A check by its id, or by the id of something that it finds; the names of areas are no such ids."""
    if not _ID.fullmatch(name) or name in AREAS:
        return None
    known = discover()
    if (check := next((c for c in known if c.id == name), None)) or "-" not in name:
        return check
    return next((c for c in known if _mentions(c, name)), None)


def areas(check: Check) -> list[str]:
    """The areas of its findings, in the order of :data:`~hybridctl.doctor.findings.AREAS`."""
    said = {area for call in _makers(check) for area in _strings(_argument(call, 2, "area"))}
    return [area for area in AREAS if area in said]


def describe(check: Check) -> str:
    """What its module says of itself."""
    return inspect.cleandoc(_module(check).__doc__ or check.title)


def _mentions(check: Check, name: str) -> bool:
    """Whether a finding of that id is made here, by its name or by an f-string that can become it."""
    # Reading a source as Python costs milliseconds; nearly all are ruled out by their text.
    modules = [m for m in _sources(check) if _may_hold(m, name)]
    places = [place for module in modules for node in _nodes(module) for place in _id_places(node)]
    return any(_becomes(node, name) for place in places for node in ast.walk(place))


def _may_hold(module: ModuleType, name: str) -> bool:
    source, patterns = _texts(module)
    return f'"{name}"' in source or any(pattern.fullmatch(name) for pattern in patterns)


@cache
def _texts(module: ModuleType) -> tuple[str, list[re.Pattern[str]]]:
    """A source, and its f-strings as patterns of what they can become."""
    source = inspect.getsource(module)
    return source, [re.compile(re.sub(r"\\{.*\\}", ".+", re.escape(text))) for text in _F_STRING.findall(source)]


def _becomes(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.JoinedStr):
        return isinstance(node, ast.Constant) and node.value == name
    parts = [p.value if isinstance(p, ast.Constant) and isinstance(p.value, str) else None for p in node.values]
    known = sum(len(p) for p in parts if p)
    return known >= _LEAST and re.fullmatch("".join(re.escape(p) if p else ".+" for p in parts), name) is not None


def _id_places(node: ast.AST) -> list[ast.AST]:
    """Where an id may stand: in what is assigned to ``id``, or first or second in a call that makes a finding.

    A finding has a title, an area, a cause and more besides its id; what merely looks something up has fewer arguments.
    """
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "id" for t in node.targets):
        return [node.value]
    if not isinstance(node, ast.Call) or len(node.args) + len(node.keywords) < 4:
        return []
    return [*node.args[:2], *(k.value for k in node.keywords if k.arg == "id")]


def _makers(check: Check) -> list[ast.Call]:
    calls = [n for m in _sources(check) for n in _nodes(m) if isinstance(n, ast.Call)]
    return [c for c in calls if ast.unparse(c.func).rpartition(".")[2] in ("finding", "Finding")]


@cache
def _nodes(module: ModuleType) -> list[ast.AST]:
    return list(ast.walk(ast.parse(_texts(module)[0])))


def _argument(call: ast.Call, place: int, name: str) -> ast.AST | None:
    if len(call.args) > place:
        return call.args[place]
    return next((k.value for k in call.keywords if k.arg == name), None)


def _strings(node: ast.AST | None) -> set[str]:
    if node is None:
        return set()
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def _sources(check: Check) -> list[ModuleType]:
    """The module of a check, and the helpers of this package that it takes functions from."""
    own = _module(check)
    late = re.findall(rf"^ +from {re.escape(checks.__name__)} import (_\w+)", _texts(own)[0], re.MULTILINE)
    helpers = [
        *(v for v in vars(own).values() if isinstance(v, ModuleType) and v.__name__.startswith(f"{checks.__name__}._")),
        *(importlib.import_module(f"{checks.__name__}.{name}") for name in late),
    ]
    return [own, *(h for h in helpers if not h.__name__.endswith("._reading"))]


def _module(check: Check) -> ModuleType:
    return sys.modules[check.run.__module__]
