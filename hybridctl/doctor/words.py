"""The telling words of a text, in English and in Chinese: what search by wording compares."""

from __future__ import annotations

import re
import unicodedata

from hybridctl.patterns import late

MOST = 20_000
"""Characters of a text that are read: a paste may be a whole log."""

_LATIN = late(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_HAN = late(r"[\u3400-\u9fff]+")
_DIGITS = late(r"\d+(?:\.\d+)*")
# Words of every log line and every sentence: they say nothing about which fault it is.
_COMMON = frozenset([
    "the", "and", "for", "with", "not", "that", "this", "from", "are", "was", "has", "have", "error", "errors",
    "failed", "runtime", "valueerror", "runtimeerror", "info", "warning", "line", "file", "self", "return", "raise",
    "python", "vllm", "packages", "site", "dist", "local", "usr", "lib", "model", "cuda", "can", "does", "must",
    "when", "its", "but",
    "什么", "怎么", "怎样", "如何", "为何", "为什", "一个", "这个", "那个", "我的", "请问", "时候", "出现", "报错",
    "问题", "解决", "服务", "运行", "模型", "使用",
])  # fmt: skip


def canonical(text: str) -> str:
    """Full-width letters and punctuation become ASCII, case goes, any white space becomes one blank."""
    return " ".join(unicodedata.normalize("NFKC", text[:MOST]).casefold().split())


def has_han(text: str) -> bool:
    """Whether Chinese characters stand in a text."""
    return _HAN.search(text[:MOST]) is not None


def words(text: str) -> set[str]:
    """Lower-case words: of camel and snake case also the parts; of Chinese, which has no spaces, every pair of characters."""
    text = unicodedata.normalize("NFKC", text[:MOST])
    found = set()
    for word in _LATIN.findall(text):
        found.add(word.lower())
        found.update(p.lower() for p in re.split(r"_+|(?<=[a-z])(?=[A-Z])", word) if len(p) > 2)
    for run in _HAN.findall(text):
        found.update(run[i : i + 2] for i in range(len(run) - 1))
    return found - _COMMON


def shape(text: str) -> str:
    """A line without what changes from run to run: every number is ``0``. In canonical form."""
    return _DIGITS.sub("0", canonical(text))
