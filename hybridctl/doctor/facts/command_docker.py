"""``docker run`` (and podman, nerdctl): what it gives the container, and where the engine's arguments begin."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hybridctl.doctor.facts.draft import Draft
from hybridctl.doctor.facts.launchers import image_version
from hybridctl.doctor.facts.shell import Word
from hybridctl.patterns import late

_SWITCHES = {
    "rm", "d", "detach", "i", "interactive", "t", "tty", "P", "publish-all", "init", "privileged", "read-only", "no-healthcheck",
    "oom-kill-disable", "sig-proxy", "help", "disable-content-trust", "q", "quiet", "replace", "no-hosts", "rmi", "tls-verify",
}  # fmt: skip
_SIZE = late(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)i?b?", re.IGNORECASE)
_GIB = {"b": 2**-30, "": 2**-30, "k": 2**-20, "m": 2**-10, "g": 1.0, "t": 1024.0}
_HOST_SIDE = late(r"([A-Za-z]:[\\/][^:]*|[^:]+)(?::.*)?", re.DOTALL)


@dataclass(slots=True)
class Run:
    """A ``docker run``: its image and entry point, and the words after the image."""

    image: Word | None = None
    entrypoint: Word | None = None
    arguments: list[Word] = field(default_factory=list)


def read_run(words: list[Word], draft: Draft) -> Run:
    """Read the options after ``docker run`` and state what they say."""
    run, mounts, caps = Run(), Pieces(), Pieces()
    i = 0
    while i < len(words) and run.image is None:
        word = words[i]
        i += 1
        if not word.value.startswith("-") or word.value == "-":
            run.image = word
            run.arguments = words[i:]
            break
        name, equals, value = word.value.lstrip("-").partition("=")
        end = word.end
        if not equals:
            short = not word.value.startswith("--")
            if short and name[:1] in "evpw" and len(name) > 1 and not set(name) <= set("ditP"):  # -eVAR=1, -p8000:8000
                name, value = name[0], name[1:]
            elif name in _SWITCHES or (short and set(name) <= set("ditPq")):
                if name == "privileged":
                    caps.add("ALL", word.start, end)
                continue
            elif i < len(words):
                value, end = words[i].value, words[i].end
                i += 1
        elif name[:1] in "ev" and len(name) > 1 and not word.value.startswith("--"):  # -eVAR=1
            name, value = name[0], f"{name[1:]}={value}"
        _option(name, value, Word(value, word.start, end), draft, mounts, caps, run)
    mounts.say("command.mounts", draft)
    caps.say("command.caps", draft)
    if run.image is not None:
        state_image(run.image.value, run.image.start, run.image.end, draft)
    return run


class Pieces:
    """Values of a list that is spread over several options; quoted from the first to the last."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.start, self.end = 0, 0

    def add(self, value: str, start: int, end: int) -> None:
        self.start = start if not self.values else self.start
        self.end = end
        self.values.append(value)

    def say(self, key: str, draft: Draft) -> None:
        if self.values:
            draft.say(key, self.values, self.start, self.end)


def _option(name: str, value: str, at: Word, draft: Draft, mounts: Pieces, caps: Pieces, run: Run) -> None:
    if name in ("e", "env"):
        variable, equals, content = value.partition("=")
        if equals:
            draft.say_env(variable, content, at.start, at.end)
            state_devices(variable, content, at.start, at.end, draft)
    elif name in ("v", "volume"):
        if host := bind_source(value):
            mounts.add(host, at.start, at.end)
    elif name == "mount":
        parts = dict(p.split("=", 1) for p in value.split(",") if "=" in p)
        source = parts.get("source") or parts.get("src")
        if source and parts.get("type", "bind") == "bind":
            mounts.add(source, at.start, at.end)
    elif name == "gpus":
        draft.say("command.gpus", value, at.start, at.end)
        state_gpus(value, at.start, at.end, draft)
    elif name == "shm-size":
        state_shm(value, at.start, at.end, draft)
    elif name == "ipc":
        if value == "host":
            draft.say("command.shm", "host", at.start, at.end)
    elif name == "cap-add":
        caps.add(value.upper().removeprefix("CAP_"), at.start, at.end)
    elif name == "runtime":
        draft.say("command.runtime", value, at.start, at.end)
    elif name == "entrypoint":
        run.entrypoint = at


def bind_source(volume: str) -> str | None:
    """The host side of ``host:container``, Windows drive letters included; ``None`` for a named volume."""
    m = _HOST_SIDE.fullmatch(volume)
    host = m[1] if m else ""
    return host if any(c in host for c in "/\\~$%.") and ":" in volume else None


def state_shm(value: str, start: int, end: int, draft: Draft) -> None:
    draft.say("command.shm", value, start, end)
    if (m := _SIZE.fullmatch(value.strip())) and len(m[1]) < 20:
        draft.say("platform.shm_gib", round(float(m[1]) * _GIB[m[2].lower()], 4), start, end)


def state_gpus(value: str, start: int, end: int, draft: Draft) -> None:
    """``2``, ``device=0,1`` and ``"device=0"`` tell a number; ``all`` does not."""
    plain = value.strip("\"' ")
    if m := re.fullmatch(r"(?:count=)?(\d{1,4})", plain):
        draft.say("gpu.count", int(m[1]), start, end)
    elif m := re.fullmatch(r"device=([\w,:-]+)", plain):
        draft.say("gpu.count", len([d for d in m[1].split(",") if d]), start, end)


def state_devices(variable: str, value: str, start: int, end: int, draft: Draft) -> None:
    """``CUDA_VISIBLE_DEVICES=0,1`` and its relatives."""
    if variable.endswith("_VISIBLE_DEVICES") and re.fullmatch(
        r"(?:\d+|GPU-[\w-]+)(?:,(?:\d+|GPU-[\w-]+))*", value.strip()
    ):
        draft.say("gpu.count", len(value.split(",")), start, end)


def state_image(image: str, start: int, end: int, draft: Draft) -> None:
    draft.say("command.image", image, start, end)
    draft.say("platform.container", True, start, end)
    if release := image_version(image):
        package, version, cuda = release
        draft.say(f"pkg.{package}", version, start, end)
        if cuda and package == "vllm":
            draft.say("vllm.cuda", cuda, start, end)
