"""The line that puts an installed vLLM back as it was: the same build, and nothing beside it is moved."""

from __future__ import annotations

import shlex

from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Fix
from hybridctl.patterns import late

_CUDA = late(r"cu\d{2,3}")


def reinstall(facts: Facts) -> Fix:
    """For the distribution that the facts name, with the tool that installed it."""
    wanted = str(facts.value("vllm.distribution") or "vllm")
    installer = str(facts.value("vllm.installer") or "pip").lower()
    url = str(facts.value("vllm.install_url") or "")
    name, _, version = wanted.partition("==")
    public, _, variant = version.partition("+")
    if installer == "conda":
        return Fix(
            "Install the same build again.", f"conda install --force-reinstall {shlex.quote(f'{name}={public}')}"
        )
    words = ["uv", "pip", "install", *_python(facts, "--python"), "--reinstall"]
    if installer != "uv":
        words = [*(_python(facts, "") or ["pip"]), "install", "--force-reinstall"]
    words.append("--no-deps")
    if url:
        words.append(url)
        return Fix("Install it again from where it came, without moving what it depends on.", _line(words))
    words.append(wanted)
    if _CUDA.fullmatch(variant):
        words += ["--extra-index-url", f"https://wheels.vllm.ai/{public}/{variant}"]
    elif variant:
        return Fix(f"Install the same build ({variant}) again from the index or wheel that it came from.", _line(words))
    return Fix("Install the same release again, without moving what it depends on.", _line(words))


def _python(facts: Facts, flag: str) -> list[str]:
    """The interpreter that was looked at: the one on the PATH may be another."""
    stated = facts.get("platform.python")
    if stated is None or stated.origin.source != "local" or not stated.origin.quote.startswith("/"):
        return []
    return [flag, stated.origin.quote] if flag else [stated.origin.quote, "-m", "pip"]


def _line(words: list[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)
