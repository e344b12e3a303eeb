"""``LLM(model="…", tensor_parallel_size=2)`` in a Python script: keyword arguments are flags."""

from __future__ import annotations

import ast
from itertools import islice

from hybridctl.doctor.facts.draft import Draft
from hybridctl.doctor.facts.flags import Given, state_flags
from hybridctl.doctor.facts.names import plausible_model
from hybridctl.patterns import late

_CALL = late(r"\b(?P<name>(?:Async)?(?:LLM|EngineArgs|AsyncEngineArgs)|(?:sgl|sglang)\.Engine)\s*\(")
_KEYWORD = late(r"\s*([A-Za-z_]\w*)\s*=(?!=)\s*")
_ENVIRON = late(
    r"""os\.environ(?:\.setdefault\()?\[?\(?\s*["']([A-Za-z_]\w{0,100})["']\s*(?:\]\s*=|,)\s*["']([^"'\n]{0,500})["']"""
)
_OPEN, _CLOSE = "([{", ")]}"
_MAX_CALL, _MAX_CALLS = 20_000, 20


def read_python(text: str, draft: Draft) -> bool:
    """State what the first engine call of a script says; whether there was one."""
    for m in islice(_CALL.finditer(text), _MAX_CALLS):
        arguments = _arguments(text, m.end())
        keywords = [(k, s, e) for s, e in arguments if (k := _KEYWORD.match(text, s, e))]
        positional = [(s, e) for s, e in arguments[:1] if not _KEYWORD.match(text, s, e)]
        model = _literal(text[positional[0][0] : positional[0][1]]) if positional else None
        known = [k[1] for k, _, _ in keywords]
        if (
            not (isinstance(model, str) and plausible_model(model))
            and "model" not in known
            and "model_path" not in known
        ):
            continue
        engine = "sglang" if "Engine" in m["name"] and "sgl" in m["name"] else "vllm"
        draft.say("engine", engine, m.start(), m.end() - 1)
        draft.say("command.form", "python", m.start(), m.end() - 1)
        if isinstance(model, str) and plausible_model(model):
            draft.say("model.name", model, *positional[0])
        given = []
        for keyword, start, end in keywords:
            value = _as_text(text[keyword.end() : end].strip())
            if value is not None:
                begin = start + len(text[start:end]) - len(text[start:end].lstrip())
                given.append(Given(keyword[1], value, begin, end))
                if keyword[1] in ("model", "model_path") and plausible_model(value):
                    draft.say("model.name", value, begin, end)
        state_flags(given, engine, draft, str)
        for variable in _ENVIRON.finditer(text):
            draft.say_env(variable[1], variable[2], variable.start(), variable.end())
        return True
    return False


def _arguments(text: str, start: int) -> list[tuple[int, int]]:
    """The spans of the arguments of a call whose bracket opens before ``start``; a call cut short ends with the text."""
    spans: list[tuple[int, int]] = []
    depth, begin, i, stop = 0, start, start, min(len(text), start + _MAX_CALL)
    while i < stop:
        c = text[i]
        if c in "\"'":
            i = _after_string(text, i, stop)
            continue
        if c == "#":
            line_end = text.find("\n", i, stop)
            i = stop if line_end < 0 else line_end
            continue
        if c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            if depth == 0:
                break
            depth -= 1
        elif c == "," and depth == 0:
            spans.append((begin, i))
            begin = i + 1
        i += 1
    spans.append((begin, i))
    return [(s, e) for s, e in spans if text[s:e].strip()]


def _after_string(text: str, i: int, stop: int) -> int:
    quote = text[i]
    i += 1
    while i < stop and text[i] not in (quote, "\n"):
        i += 2 if text[i] == "\\" else 1
    return i + 1


def _literal(source: str) -> object:
    try:
        return ast.literal_eval(source.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _as_text(source: str) -> str | None:
    """A literal in the form that a flag would have; a name or an expression stays as it is, ``None`` is nothing."""
    value = _literal(source)
    if source == "None":
        return None
    if isinstance(value, (str, bool, int, float)):
        return str(value)
    return source
