"""What a check can find, read from its own source: the ids of its findings and their areas stand in no list."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from types import ModuleType

from hybridctl.doctor import checks
from hybridctl.doctor.checks import Check, discover
from hybridctl.doctor.findings import AREAS

_ID = re.compile(r"[a-z0-9.]+(?:-[a-z0-9.]+)+")
_F_STRING = re.compile(r'f"([a-z0-9-]{8,})\{')


def find(name: str) -> Check | None:
    """A check by its id, or by the id of something that it finds."""
    known = discover()
    if check := next((c for c in known if c.id == name), None):
        return check
    return next((c for c in known if _mentions(c, name)), None) if _ID.fullmatch(name) else None


def areas(check: Check) -> list[str]:
    """The areas of its findings, in the order of :data:`~hybridctl.doctor.findings.AREAS`."""
    said = {area for call in _makers(check) for area in _strings(_argument(call, 2, "area"))}
    return [area for area in AREAS if area in said]


def describe(check: Check) -> str:
    """What its module says of itself."""
    return inspect.cleandoc(_module(check).__doc__ or check.title)


def _mentions(check: Check, name: str) -> bool:
    """Whether a finding of that id is made here: the id stands first in a call, whole or as the beginning of an f-string."""
    modules = [m for m in _sources(check) if _may_hold(inspect.getsource(m), name)]
    for call in _calls(modules):
        first = _argument(call, 0, "id")
        # A finding has a title, an area, a cause and more besides its id; what merely looks something up has fewer arguments.
        if first is None or len(call.args) + len(call.keywords) < 4:
            continue
        begins = [s for n in ast.walk(first) if isinstance(n, ast.JoinedStr) for s in _strings(n.values[0])]
        if name in _strings(first) or any(name.startswith(s) for s in begins):
            return True
    return False


def _makers(check: Check) -> list[ast.Call]:
    return [c for c in _calls(_sources(check)) if ast.unparse(c.func).rpartition(".")[2] in ("finding", "Finding")]


def _calls(modules: list[ModuleType]) -> list[ast.Call]:
    trees = [ast.parse(inspect.getsource(module)) for module in modules]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _may_hold(source: str, name: str) -> bool:
    """Reading a source as Python costs milliseconds; most are ruled out by their text."""
    return f'"{name}"' in source or any(name.startswith(begin) for begin in _F_STRING.findall(source))


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
    helpers = [
        v for v in vars(own).values() if isinstance(v, ModuleType) and v.__name__.startswith(f"{checks.__name__}._")
    ]
    return [own, *(h for h in helpers if not h.__name__.endswith("._reading"))]


def _module(check: Check) -> ModuleType:
    return sys.modules[check.run.__module__]
