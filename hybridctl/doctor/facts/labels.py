"""``label : value`` lines, in all the dress that people give them, and the texts that several programs print alike."""

from __future__ import annotations

import re

from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.statements import IMPLIED, STATED, Found, is_nothing

_LABEL = re.compile(r"\s*(?:[-*•+]\s+|\d+[.)]\s+)?[`*\"']*([^\W\d_][^:：=|]{0,60}?)\s*(?:[:：]|=(?!=))\s*(.*)$")
_CELLS = re.compile(r"\s*\|([^|]+)\|([^|]+)\|?\s*$")
_DRESS = re.compile(r"[`*\"']+")

_ARCH = r"x86_64|aarch64|arm64|ppc64le|amd64|AMD64"
_LINUX = re.compile(rf"Linux-(?P<release>\d\S*?)-(?P<arch>{_ARCH})(?:-with-glibc(?P<glibc>[\d.]+))?")
_UNAME = re.compile(rf"\s*Linux \S+ (?P<release>\d+\.\S+) .*?\b(?P<arch>{_ARCH})\b")
_WSL_KERNEL = re.compile(r"(?<![\w.])\d+\.\d+\.\d+(?:\.\d+)?-microsoft-standard\S*", re.IGNORECASE)
_NVCC = re.compile(r"release (\d+\.\d+)(?:, V(\d+(?:\.\d+)+))?")
_DRIVER = re.compile(r"(?<![\d.])((?:[<>=~]{1,2}\s*)?\d{3}(?:\.\d{1,3}){0,2})(?!\.?\d)")
_DISTROS = re.compile(
    r"\b(?:ubuntu|debian|centos|red ?hat|rhel|rocky|alma|fedora|arch|manjaro|suse|sles|linux|amazon|alinux|openeuler|anolis|mint|"
    r"nixos|gentoo|pop!_os|mariner|flatcar|bookworm|jammy|noble)\b",
    re.IGNORECASE,
)


def split_label(text: str) -> tuple[str, str] | None:
    """The label (lower case, single spaces, undressed) and the value of a line, or ``None`` when it has no such form.

    Bullets, bold marks, back quotes, JSON quotes, table cells and full-width colons count as dress.
    """
    cells = _CELLS.match(text)
    found = cells or _LABEL.match(text)
    if not found:
        return None
    label = " ".join(_DRESS.sub(" ", found[1]).split()).lower()
    value = found[2].strip().rstrip(",").strip()
    value = _DRESS.sub("", value) if value[:1] in "`*\"'" else value
    return (label, value.strip()) if label else None


def say_kernel(found: Found, text: str, line: Line) -> bool:
    """What ``platform.platform()`` or ``uname -a`` tells; whether the text was one of them."""
    seen = _LINUX.search(text) or _UNAME.match(text)
    if seen:
        found.say("platform.kernel", seen["release"], line)
        found.say("platform.arch", seen["arch"], line, IMPLIED)
        found.say("platform.os", "linux", line, IMPLIED)
        if seen.groupdict().get("glibc"):
            found.say("platform.glibc", seen["glibc"].strip("."), line, IMPLIED)
        if "microsoft" in seen["release"].lower():
            found.say("platform.wsl", True, line, IMPLIED)
        return True
    if kernel := _WSL_KERNEL.search(text):
        found.say("platform.kernel", kernel[0], line)
        found.say("platform.os", "linux", line, IMPLIED)
        found.say("platform.wsl", True, line, IMPLIED)
        return True
    if text.startswith(("Windows-", "macOS-")):
        found.say("platform.os", "windows" if text[0] == "W" else "macos", line, IMPLIED)
        return True
    return False


def say_os(found: Found, text: str, line: Line) -> None:
    """An operating system as printed, with its machine in brackets where there is one."""
    if is_nothing(text):
        return
    machine = re.search(rf"\s*\(({_ARCH})\)\s*$", text)
    if machine:
        found.say("platform.arch", machine[1], line, IMPLIED)
        text = text[: machine.start()]
    found.say("platform.distro", text.strip(), line)
    systems = {
        "windows": re.search(r"\bwindows\b", text, re.IGNORECASE),
        "linux": _DISTROS.search(text),
        "macos": re.search(r"\b(?:macos|mac os|os x|darwin)\b", text, re.IGNORECASE),
    }
    named = [system for system, hit in systems.items() if hit]
    if re.search(r"\bWSL", text, re.IGNORECASE):
        found.say("platform.wsl", True, line, IMPLIED)
        named = ["linux"]
    if len(named) == 1:
        found.say("platform.os", named[0], line, IMPLIED)


def say_platform(found: Found, text: str, line: Line) -> None:
    """One word for the platform (wsl2, windows, docker, macos, linux), or what ``platform.platform()`` gives."""
    if say_kernel(found, text, line):
        return
    word = text.strip().lower()
    if re.match(r"wsl\b|wsl2\b", word):
        found.say("platform.wsl", True, line)
        found.say("platform.os", "linux", line)
    elif word.startswith("win"):
        found.say("platform.os", "windows", line)
    elif re.match(r"docker|container|podman|kubernetes|k8s|openshift", word):
        found.say("platform.container", True, line)
    elif re.match(r"mac|darwin", word):
        found.say("platform.os", "macos", line)
    elif word.startswith("linux") and "/" not in word:
        found.say("platform.os", "linux", line)
    elif _DISTROS.search(word):
        say_os(found, text, line)


def say_driver(found: Found, text: str, line: Line, rank: int = STATED) -> None:
    """An NVIDIA driver number; three digits in front, so that a line cut in the middle says nothing."""
    if seen := _DRIVER.search(text):
        found.say("driver.version", seen[1], line, rank)


def say_toolkit(found: Found, text: str, line: Line) -> None:
    """A toolkit version, or what ``nvcc --version`` prints."""
    if seen := _NVCC.search(text):
        found.say("cuda.toolkit", seen[2] or seen[1], line)
    elif re.match(r"(?:[<>=~]{1,2}\s*)?v?\d{1,2}\.\d", text):
        found.say("cuda.toolkit", text, line)


def say_python(found: Found, text: str, line: Line) -> None:
    if seen := re.match(r"(?:Python\s+)?((?:[<>=~]{1,2}\s*)?[23](?:\.\d+){0,2}\w*)(?![.\d])", text):
        found.say("platform.python", seen[1], line)


def say_glibc(found: Found, text: str, line: Line) -> None:
    if seen := re.search(r"(?<![\w.])(?:glibc[- ]?)?(\d\.\d{1,2})(?![\d.])", text):
        found.say("platform.glibc", seen[1], line)
