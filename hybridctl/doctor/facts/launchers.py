"""Recognises what starts an engine in a list of words: the program, the module, or the tool around it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hybridctl.doctor.facts.shell import Word
from hybridctl.patterns import late

# program → subcommands that load a model → engine. An empty subcommand: the program itself does.
_PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "vllm": ("vllm", ("serve", "bench", "run-batch")),
    "sglang": ("sglang", ("serve",)),
    "ollama": ("ollama", ("run", "serve", "create", "pull")),
    "lms": ("lmstudio", ("load", "server")),
    "lmdeploy": ("lmdeploy", ("serve", "chat")),
    "aphrodite": ("aphrodite", ("run", "serve")),
    "tokenspeed": ("tokenspeed", ("serve",)),
    "llama-server": ("llama.cpp", ()),
    "llama-cli": ("llama.cpp", ()),
    "llama-bench": ("llama.cpp", ()),
    "llama-run": ("llama.cpp", ()),
    "text-generation-launcher": ("tgi", ()),
    "trtllm-serve": ("tensorrt-llm", ()),
    "mlx_lm.server": ("mlx", ()),
}
_MODULES = (
    (late(r"vllm(?:\.[A-Za-z_]\w*)+"), "vllm"),
    (late(r"sglang(?:\.[A-Za-z_]\w*)+"), "sglang"),
    (late(r"lmdeploy(?:\.[A-Za-z_]\w*)+"), "lmdeploy"),
    (late(r"aphrodite(?:\.[A-Za-z_]\w*)+"), "aphrodite"),
    (late(r"mlx_lm(?:\.[A-Za-z_]\w*)+"), "mlx"),
    (late(r"tensorrt_llm(?:\.[A-Za-z_]\w*)+"), "tensorrt-llm"),
)
_NOT_SERVING = late(r"collect_env|compile_protos|\.benchmark_|check_env|entrypoints\.cli\.main$")
_SCRIPTS = {"api_server.py": "vllm", "launch_server.py": "sglang"}
_SHELLS = {"sh", "bash", "zsh", "dash", "ash", "pwsh", "powershell"}
_INSTALLERS = {"pip", "pip3", "uv", "pipx", "conda", "mamba", "micromamba", "poetry", "pixi"}
_CONTAINERS = {"docker", "podman", "nerdctl"}


@dataclass(frozen=True, slots=True)
class Launch:
    """Where the engine's own arguments begin (``at``), and how it is started."""

    engine: str
    form: str
    at: int
    positional_model: bool
    module: Word | None = None
    start: int = 0
    """Index of the word that begins the launch itself, after ``VAR=1``, ``nohup`` and the like."""


def base_name(word: str) -> str:
    """``/opt/env/bin/vllm`` and ``vllm.exe`` are both vllm."""
    return re.split(r"[/\\]", word)[-1].removesuffix(".exe").lower()


def find_engine(words: list[Word]) -> Launch | None:
    """The first engine start in a command."""
    for i, word in enumerate(words):
        name = base_name(word.value)
        following = words[i + 1].value if i + 1 < len(words) else ""
        if name in _PROGRAMS:
            engine, subcommands = _PROGRAMS[name]
            if not subcommands:
                return Launch(engine, "serve", i + 1, name == "trtllm-serve", start=i)
            if following in subcommands and not (name == "ollama" and following in ("serve", "pull", "create")):
                form = "bench" if following in ("bench", "run-batch") else "serve"
                if name == "lmdeploy" and words[i + 2 : i + 3] and words[i + 2].value == "api_server":
                    return Launch(engine, form, i + 3, True, start=i)
                return Launch(
                    engine, form, i + 2, name in ("vllm", "ollama", "lms", "aphrodite", "tokenspeed"), start=i
                )
        if word.value == "-m" and following:
            for pattern, engine in _MODULES:
                if pattern.fullmatch(following) and not _NOT_SERVING.search(following):
                    return Launch(engine, "module", i + 2, False, words[i + 1], max(i - 1, 0))
            if following == "vllm.entrypoints.cli.main" and i + 2 < len(words) and words[i + 2].value == "serve":
                return Launch("vllm", "module", i + 3, True, words[i + 1], max(i - 1, 0))
        if name in _SCRIPTS and i and base_name(words[i - 1].value).startswith("python"):
            return Launch(_SCRIPTS[name], "module", i + 1, False, None, i)
    return None


def shell_script(words: list[Word]) -> Word | None:
    """The script of ``bash -c "…"``."""
    for i, word in enumerate(words[:-2]):
        option = words[i + 1].value
        if base_name(word.value) in _SHELLS and re.fullmatch(r"-[a-z]*c|-Command", option):
            return words[i + 2]
    return None


def find_container(words: list[Word]) -> int | None:
    """Index of the first option of ``docker run``, or ``None``."""
    for i, word in enumerate(words):
        if base_name(word.value) in _CONTAINERS:
            for j in range(i + 1, min(i + 4, len(words))):
                if words[j].value in ("run", "create"):
                    return j + 1
    return None


def find_install(words: list[Word]) -> int | None:
    """Index of the first argument of ``pip install`` and its relatives, or ``None``."""
    if not any(base_name(w.value) in _INSTALLERS for w in words):
        return None
    return next((i + 1 for i, w in enumerate(words) if w.value in ("install", "add")), None)


_IMAGES = (
    (late(r"(?:^|[/:_-])sglang|sglang(?:[/:_-]|$)"), "sglang"),
    (late(r"vllm"), "vllm"),
    (late(r"llama[._-]?cpp"), "llama.cpp"),
    (late(r"(?:^|/)ollama"), "ollama"),
    (late(r"text-generation-inference"), "tgi"),
    (late(r"tensorrt[-_]?llm"), "tensorrt-llm"),
    (late(r"lmdeploy"), "lmdeploy"),
)
_OFFICIAL = late(
    r"(?:docker\.io/|registry-1\.docker\.io/|[\w.-]+/)?(?:(vllm)/vllm-[\w-]+|(lmsysorg)/sglang):v?"
    r"(?P<version>\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?)(?P<rest>[\w.-]*)"
)


def image_engine(image: str) -> str | None:
    """The engine that an image holds, by its name."""
    lowered = image.lower()
    return next((engine for pattern, engine in _IMAGES if pattern.search(lowered)), None)


def image_version(image: str) -> tuple[str, str, str | None] | None:
    """``(package, version, CUDA version)`` of an engine's own released image, from its tag."""
    m = _OFFICIAL.fullmatch(image)
    if not m:
        return None
    cuda = re.search(r"(?:^|[-_])cu(\d{2})(\d)\b", m["rest"])
    return ("vllm" if m[1] else "sglang", m["version"], f"{cuda[1]}.{cuda[2]}" if cuda else None)
