"""``pip install vllm==0.22.0 --torch-backend=cu129`` and its relatives: pins and the choice of a build."""

from __future__ import annotations

import re

from hybridctl.doctor.facts.draft import Draft
from hybridctl.doctor.facts.flags import read_flags
from hybridctl.doctor.facts.shell import Word
from hybridctl.patterns import late

_PIN = late(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*===?\s*([\w.!+-]+?)(?:\s*;.*)?")
_BUILD_FLAGS = {"torch-backend", "index-url", "extra-index-url", "find-links"}
_NORMAL = late(r"[-_.]+")
_CUDA = late(r"cu(\d{2})(\d)$")


def read_install(words: list[Word], draft: Draft) -> bool:
    """State pins and build flags; whether there was anything to state."""
    before = len(draft.facts)
    given, rest = read_flags(words, None)
    for word in rest:
        if m := _PIN.fullmatch(word.value):
            package = _NORMAL.sub("-", m[1]).lower()
            draft.say(f"pkg.{package}", m[2], word.start, word.end)
            cuda = _CUDA.search(m[2].partition("+")[2])
            if cuda and package in ("vllm", "torch"):
                draft.say(f"{package}.cuda", f"{cuda[1]}.{cuda[2]}", word.start, word.end)
        elif m := re.search(r"/vllm-(\d+\.\d+\.\d+(?:\.?(?:post|rc)\d+)?)(?:(?:\+|%2B)cu(\d{2})(\d))?-cp", word.value):
            draft.say("pkg.vllm", m[1], word.start, word.end)
            if m[2]:
                draft.say("vllm.cuda", f"{m[2]}.{m[3]}", word.start, word.end)
    for flag in given:
        name = flag.name.replace("_", "-")
        if name in _BUILD_FLAGS and flag.value and "@" not in flag.value:
            draft.say(f"flag.{name}", flag.value, flag.start, flag.end)
    return len(draft.facts) > before
