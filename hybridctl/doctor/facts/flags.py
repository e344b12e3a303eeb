"""Flags of a launch line: reading them from words, and stating them under vLLM's long names.

SGLang and llama.cpp names are kept; where one of them means the same as a vLLM flag, both are stated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hybridctl.doctor.facts.draft import Draft, masked
from hybridctl.doctor.facts.model import Value
from hybridctl.doctor.facts.shell import Word
from hybridctl.flags import flag_window, is_switch, long_name
from hybridctl.loose_json import flatten, loads
from hybridctl.patterns import late

_FLAG = late(r"--?[A-Za-z]")
_NAME = late(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
_INT = late(r"[+-]?\d{1,18}")
_FLOAT = late(r"[+-]?(?:\d{1,18}\.\d*|\.\d+|\d{1,18}(?:\.\d*)?[eE][+-]?\d{1,3})")
_HUMAN = late(r"(\d{1,12}(?:\.\d{1,6})?)([kKmMgGtT])(?:i?[bB])?")
# vLLM reads 32k as 32,000 and 32K as 32,768.
_UNITS = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30, "t": 10**12, "T": 2**40}
_SWITCH_WORDS = ("enable-", "disable-", "no-", "trust-", "skip-", "use-")
_TEXT_FLAGS = {
    "model",
    "served-model-name",
    "revision",
    "tokenizer",
    "chat-template",
    "api-key",
    "host",
    "code-revision",
}
_MANY = {
    "served-model-name", "lora-modules", "prompt-adapters", "api-key", "middleware", "logits-processors", "cuda-graph-sizes",
    "cudagraph-capture-sizes", "cuda-graph-bs", "data-parallel-size-per-node", "lora-paths",
}  # fmt: skip
_SECRET = {"api-key", "hf-token", "admin-api-key", "ssl-keyfile-password"}

_SGLANG = {
    "tp": "tensor-parallel-size", "tp-size": "tensor-parallel-size", "dp": "data-parallel-size", "dp-size": "data-parallel-size",
    "pp": "pipeline-parallel-size", "pp-size": "pipeline-parallel-size", "ep": "expert-parallel-size",
    "ep-size": "expert-parallel-size", "model-path": "model", "tokenizer-path": "tokenizer",
    "speculative-algo": "speculative-algorithm", "mem-fraction": "mem-fraction-static", "json-model-override-args": "hf-overrides",
}  # fmt: skip
_LLAMA = {
    "m": "model", "hf": "hf-repo", "hfr": "hf-repo", "c": "ctx-size", "ngl": "n-gpu-layers", "gpu-layers": "n-gpu-layers",
    "fa": "flash-attn", "np": "parallel", "b": "batch-size", "ub": "ubatch-size", "t": "threads", "ctk": "cache-type-k",
    "ctv": "cache-type-v", "ts": "tensor-split", "sm": "split-mode", "mg": "main-gpu", "ot": "override-tensor", "a": "alias",
    "cmoe": "cpu-moe", "ncmoe": "n-cpu-moe", "mm": "mmproj", "n": "predict",
}  # fmt: skip
_ALIASES = {"sglang": _SGLANG, "llama.cpp": _LLAMA}
_VLLM_SPELLINGS = {"tp": "tensor-parallel-size", "tp-size": "tensor-parallel-size", "pp": "pipeline-parallel-size",
                   "dp": "data-parallel-size"}  # fmt: skip
# The same thing under vLLM's name, where the engine's own flag says it.
_ALSO = {
    "sglang": {"context-length": "max-model-len", "max-running-requests": "max-num-seqs"},
    "llama.cpp": {"ctx-size": "max-model-len"},
}
_LLAMA_SWITCHES = {
    "jinja",
    "cpu-moe",
    "mlock",
    "no-mmap",
    "no-warmup",
    "metrics",
    "embedding",
    "verbose",
    "v",
    "cont-batching",
}


@dataclass(frozen=True, slots=True)
class Given:
    """A flag as written: name without dashes, value if there was one, and the place of both."""

    name: str
    value: str | None
    start: int
    end: int
    dashes: int = 2
    quoted: str | None = None
    """The verbatim text when it is not ``text[start:end]``."""


def looks_like_flag(word: str) -> bool:
    return _FLAG.match(word) is not None


def read_flags(words: list[Word], engine: str | None) -> tuple[list[Given], list[Word]]:
    """Flags, and the words that are neither flags nor their values."""
    given: list[Given] = []
    rest: list[Word] = []
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if not looks_like_flag(word.value):
            rest.append(word)
            continue
        body = word.value.lstrip("-")
        dashes = len(word.value) - len(body)
        name, equals, value = body.partition("=")
        if dashes >= 2 and " " in name.strip() and not equals:  # a YAML item "--flag value"
            name, _, value = name.partition(" ")
            equals = "="
        if dashes == 1 and name[:1] == "O" and engine != "llama.cpp" and (m := re.fullmatch(r"O(\d)", name)):
            given.append(Given("O", m[1], word.start, word.end, 1))
            continue
        name, end = name.strip(), word.end
        if not _NAME.fullmatch(name):
            continue
        if equals:
            given.append(Given(name, value, word.start, end, dashes))
            continue
        taken: list[str] = []
        if i < len(words) and _takes(name, dashes, words[i].value, engine):
            taken.append(words[i].value)
            end = words[i].end
            i += 1
            while _kebab(name) in _MANY and i < len(words) and not looks_like_flag(words[i].value):
                taken.append(words[i].value)
                end = words[i].end
                i += 1
        given.append(Given(name, " ".join(taken) if taken else None, word.start, end, dashes))
    return given, rest


def _takes(name: str, dashes: int, following: str, engine: str | None) -> bool:
    """Whether the next word is this flag's value."""
    if looks_like_flag(following) and not following.startswith("-inf"):
        return False
    plain = canonical_name(name, dashes, engine)
    if following.lower() in ("true", "false"):
        return True
    if engine == "llama.cpp":
        return plain not in _LLAMA_SWITCHES and not plain.startswith("no-")
    if is_switch(plain) or is_switch(plain.removeprefix("no-")):
        return False
    return not (plain.startswith(_SWITCH_WORDS) and flag_window(plain) is None)


def _kebab(name: str) -> str:
    head, dot, path = name.partition(".")
    return head.replace("_", "-") + dot + path


def canonical_name(name: str, dashes: int, engine: str | None) -> str:
    """vLLM's long name for a flag as written (any number of dashes), or the engine's own name."""
    head, dot, path = _kebab(name).partition(".")
    if engine in _ALIASES:
        head = _ALIASES[engine].get(head, head)
    elif dashes == 1:
        head = long_name("-" + head) or _VLLM_SPELLINGS.get(head, head)
    elif flag_window(head) is None:
        head = _VLLM_SPELLINGS.get(head, head)
    return head + dot + path


def typed(name: str, text: str) -> Value:
    """A number, a truth value, or the text itself."""
    text = text.strip()
    if name in _TEXT_FLAGS:
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if m := _HUMAN.fullmatch(text):
        return int(float(m[1]) * _UNITS[m[2]])
    return text


def state_flags(given: Iterable[Given], engine: str | None, draft: Draft, resolve: Callable[[str], str]) -> None:
    """State every flag; of one that is repeated the last counts, as argparse has it."""
    last: dict[str, tuple[Value, Given]] = {}
    for flag in given:
        for key, value in _statements(flag, engine, resolve):
            last.pop(key, None)
            last[key] = (value, flag)
    for key, (value, flag) in last.items():
        draft.say(f"flag.{key}", value, flag.start, flag.end, flag.name if key in _SECRET else flag.quoted)


def _statements(flag: Given, engine: str | None, resolve: Callable[[str], str]) -> Iterable[tuple[str, Value]]:
    text = None if flag.value is None else resolve(flag.value)
    if flag.dashes == 1 and flag.name == "O" and engine not in _ALIASES:
        if text is not None and text.strip().isdigit():
            yield "optimization-level", typed("", text)
            return
        yield from _json("compilation-config", text or "")
        return
    name = canonical_name(flag.name, flag.dashes, engine)
    if name in _SECRET:
        yield name, masked(text or "")
        return
    head, dot, path = name.partition(".")
    if dot and path:
        value = loads(text) if text and text[:1] in "{[" else typed(path, text or "true")
        yield head, json.dumps({path: value if isinstance(value, (str, int, float, bool)) else text})
        yield from ((f"{head}.{p}" if p else head, v) for p, v in flatten(value, path))
    elif text is None:
        off = name.startswith("no-") and flag_window(name) is None
        yield (name[3:], False) if off else (name, True)
    elif text[:1] == "{" or (name.endswith(("-config", "-overrides", "-kwargs")) and text[:1] == "["):
        yield from _json(name, text)
    else:
        value = typed(name, text)
        yield name, value
        yield from _derived(name, value, engine)
    if name == "disable-radix-cache" and engine == "sglang":
        yield "enable-prefix-caching", False


def _json(name: str, text: str) -> Iterable[tuple[str, Value]]:
    yield name, text
    value = loads(text)
    if isinstance(value, dict):
        yield from ((f"{name}.{path}", inner) for path, inner in flatten(value))


def _derived(name: str, value: Value, engine: str | None) -> Iterable[tuple[str, Value]]:
    if engine in _ALSO and name in _ALSO[engine]:
        yield _ALSO[engine][name], value
    if name == "speculative-algorithm":
        yield "speculative-algo", value
        yield "speculative-config", str(value)
        yield "speculative-config.method", str(value).lower()
    if name == "num-speculative-tokens":
        yield "speculative-config.num_speculative_tokens", value
    if name == "expert-parallel-size":
        yield "ep-size", value
        if isinstance(value, int) and value > 1:
            yield "enable-expert-parallel", True
