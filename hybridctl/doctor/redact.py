"""Takes out of foreign text who and where somebody is: accounts, machines, addresses; and credentials (:mod:`hybridctl.secrets`).

What a fault is about stays: versions of four numbers, paths below the home, public addresses, addresses that every machine has.
Which names are common, and which hosts public, is in ``recipes/tables/report.toml``. Only values are looked at, never keys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from ipaddress import AddressValueError, IPv6Address
from typing import Any

from hybridctl import secrets
from hybridctl.data import read_table
from hybridctl.doctor.facts.package_names import is_known, normalise

IP, HOST, USER, EMAIL, HOME = "<ip>", "<host>", "<user>", "<email>", "~"

# A key under which no value may be shown, whatever it looks like.
_SECRET_KEY = re.compile(
    r"token$|secret|passw|api[-_]?key|access[-_]?key|credential|private[-_]?key|cookie|authorization", re.IGNORECASE
)
_NAME = r"[A-Za-z0-9_](?:[\w.-]{0,61}\w)?"
_HOME = re.compile(
    rf"(?:(?<![\w.])|(?<=file://))(?:(?:/[\w.-]{{1,60}}){{0,5}}?/(?:home|Users)/|[A-Za-z]:(?:\\\\?|/)Users(?:\\\\?|/))({_NAME})"
    r"|(?<![\w./~-])/root(?![\w.-])"
)
_EMAIL = re.compile(r"(?<![\w.+@/-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,5}\.[A-Za-z]{2,12}(?![\w(])")
_PROMPT = re.compile(rf"(?<![\w.@-])({_NAME})@({_NAME})(?=:[~/]|[ ][~/][^\s\]]*\][#$]|:\s*[~/])")
_URL = re.compile(r"\b([a-z][a-z0-9+.-]{1,15}://)(?:[^\s/@'\"<>]{1,100}@)?([A-Za-z0-9](?:[\w.-]*\w)?)", re.IGNORECASE)
_PLACES = {"hf", "docker", "file", "ipc", "inproc", "oci", "modelscope", "about", "data"}
"""Schemes whose addresses name no machine."""
_WORD = r"(?![Nn]one\b|[Nn]ull\b|[Tt]rue\b|[Ff]alse\b|auto\b)([\w.-]*[A-Za-z][\w.-]*)"
_HOST_NAMED = re.compile(
    r"((?<![\w-])--?(?:[\w-]*[-_])?(?:host|addr|address|ip)[ =]['\"]?"
    r"|(?<![\w-])(?:[A-Z0-9_]*_)?(?:HOST|HOSTNAME|HOST_IP|ADDR|ADDRESS|NODENAME)['\"]?\s?[=:]\s?['\"]?"
    rf"|(?<![\w.-])(?:host|hostname|nodename|node_name|server_name|master_addr)['\"]?[=:]\s?['\"]?){_WORD}"
)
_USER_NAMED = re.compile(
    r"((?<![\w-])(?:USER|USERNAME|LOGNAME|SUDO_USER)['\"]?\s?[=:]\s?['\"]?|(?<![\w.-])(?:user|username|login)(?:=|['\"]:\s?)['\"]?"
    rf"|\b[ug]id=\d+\(){_WORD}"
)
_SYSLOG = re.compile(
    rf"^([A-Z][a-z]{{2}} {{1,2}}\d{{1,2}} \d\d:\d\d:\d\d )({_NAME})(?= [\w./@-]+(?:\[\d+\])?:)", re.MULTILINE
)
_NCCL = re.compile(rf"^({_NAME})(?=:\d+:\d+ \[\d+\] )", re.MULTILINE)
_CLOUD_HOST = re.compile(r"\bip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[\w-]+)*")
_PRIVATE_HOST = re.compile(
    r"(?<![\w.-])[A-Za-z0-9][\w-]{0,62}(?:\.[\w-]{1,63}){0,6}\.(?:internal|local|lan|corp|intranet|localdomain|home\.arpa)\b(?![\w(/.])"
)
_MAC = re.compile(r"(?<![\w:.-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:.-])")
_IPV4 = re.compile(r"(?<![\w.])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?!\w|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_BEFORE = re.compile(r"((?!\d)\w[\w.-]*?)(?:[\]'\")(]{0,2}\s*[:=：]?\s*['\"(]?|[-_]v?)$")
_PIN = re.compile(r"[=<>~!]=\s?['\"]?$")
_TAIL = r"(?:py|cp|archive|linux|x86|amd64|arm64|aarch64|win|manylinux|cu)\d*"
_FILE_END = re.compile(rf"\.(?:dist-info|egg|tar|whl|so|zip|deb|rpm|run)\b|[-+_]{_TAIL}")
_BUILD_END = re.compile(
    r"\+cu\d|-(?:microsoft|generic|azure|aws|gcp|oracle|lowlatency|nvidia|wsl2?|linux|x86|amd64|arm64|aarch64)\b",
    re.IGNORECASE,
)
# The lines of a private key whose first line is not there.
_KEY_TAIL = re.compile(
    r"(?:^[^\n]{0,200}?[A-Za-z0-9+/=]{16,}[ \t]*\n)+(?=[^\n]{0,200}-----END [A-Z ]{0,40}PRIVATE KEY-----)", re.MULTILINE
)
_GPU = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


class Redactor:
    """Hides, and counts what it hid in :attr:`counts`, by kind."""

    def __init__(
        self, users: Iterable[str] = (), hosts: Iterable[str] = (), packages: Iterable[str] = (), home: str = ""
    ) -> None:
        """Args:
        users, hosts: names to hide wherever they stand as a word; common ones are left.
        packages: after these a number of four parts is a version.
        home: a home folder of an unusual place.
        """
        table = read_table("report.toml")["hide"]
        self.counts: Counter[str] = Counter()
        self._public = tuple(table["public_hosts"])
        self._common = frozenset(table["common_names"])
        self._prefixes = tuple(table["version_prefixes"])
        self._version_words = frozenset(table["version_words"])
        self._packages = frozenset(packages)
        self._home = home.rstrip("/\\") if len(home.strip("/\\")) > 3 else ""
        self._users = self._names(users)
        self._hosts = self._names([name for host in hosts for name in (host, host.partition(".")[0])])
        self._learnt: re.Pattern[str] | None = None
        self._compile()

    def learn(self, texts: Iterable[str]) -> None:
        """Take the names of accounts and machines that a text gives away in one place, to hide them in all."""
        for text in texts:
            self._users |= self._names([m[1] for m in _HOME.finditer(text) if m[1]])
            for pattern, into in ((_USER_NAMED, self._users), (_HOST_NAMED, self._hosts)):
                into |= self._names(m[2] for m in pattern.finditer(text))
            self._hosts |= self._names(m[2] for m in _SYSLOG.finditer(text))
            self._hosts |= self._names(m[1] for m in _NCCL.finditer(text))
            for user, host in _PROMPT.findall(text):
                self._users |= self._names([user])
                self._hosts |= self._names([host])
        self._compile()

    def _names(self, names: Iterable[str]) -> set[str]:
        """Those that may stand for somebody: no common ones, and none so short that they are parts of other things."""
        return {n for n in names if len(n) > 2 and not self._is_public(n) and not n.replace(".", "").isdigit()}

    def _compile(self) -> None:
        names = sorted(self._users | self._hosts, key=len, reverse=True)
        joined = "|".join(re.escape(name) for name in names)
        self._learnt = re.compile(rf"(?<![\w-])(?:{joined})(?![\w-])") if names else None

    def text(self, text: str, version: bool = False) -> str:
        """The text without those things. ``version``: it is one, so that its numbers are no address."""
        hidden = secrets.hide(text)
        self.counts["credential"] += max(0, hidden.count(secrets.HIDDEN) - text.count(secrets.HIDDEN))
        text = self._swap(_EMAIL, hidden, "e-mail address", lambda m: EMAIL)
        if self._home and self._home in text:
            text = self._swap(
                re.compile(rf"(?<![\w.-]){re.escape(self._home)}(?![\w.-])"), text, "home folder", lambda m: HOME
            )
        text = self._swap(_HOME, text, "home folder", lambda m: HOME)
        text = self._swap(_PROMPT, text, "machine", lambda m: f"{USER}@{HOST}")
        text = self._swap(_URL, text, "machine", self._address)
        text = self._swap(_HOST_NAMED, text, "machine", lambda m: m[0] if self._is_public(m[2]) else m[1] + HOST)
        text = self._swap(_USER_NAMED, text, "account", lambda m: m[0] if m[2].lower() in self._common else m[1] + USER)
        text = self._swap(_SYSLOG, text, "machine", lambda m: m[1] + HOST)
        for pattern in (_NCCL, _CLOUD_HOST, _PRIVATE_HOST):
            text = self._swap(pattern, text, "machine", lambda m: HOST)
        text = self._swap(_GPU, text, "device", lambda m: f"{m[1]}-<id>")
        if not version:
            text = self._swap(_MAC, text, "network address", lambda m: "<mac>")
            text = self._swap(_IPV4, text, "network address", self._ipv4)
            text = self._swap(_IPV6, text, "network address", self._ipv6)
        if self._learnt is not None:
            text = self._swap(self._learnt, text, "account or machine", lambda m: USER if m[0] in self._users else HOST)
        return text

    def lines(self, lines: list[str]) -> list[str]:
        """Lines that belong together: a private key or a manifest goes over several. As many come back."""
        text = "\n".join(line.replace("\n", " ") for line in lines)
        text = self._swap(_KEY_TAIL, text, "credential", lambda m: f"{secrets.HIDDEN}\n" * m[0].count("\n"))
        return self.text(text).split("\n") if lines else []

    def value(self, value: Any, key: str = "", version: bool = False) -> Any:
        """A document of tables, lists and texts: its values, looked through; what a telling key holds is hidden whole."""
        if isinstance(value, str):
            if value and _SECRET_KEY.search(key):
                self.counts["credential"] += 1
                return secrets.HIDDEN
            return self.text(value, version)
        if isinstance(value, dict):
            return {name: self.value(inner, str(name), version) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(inner, key, version) for inner in value]
        return value

    def _swap(self, pattern: re.Pattern[str], text: str, kind: str, replace: Callable[[re.Match[str]], str]) -> str:
        def one(match: re.Match[str]) -> str:
            new = replace(match)
            self.counts[kind] += new != match[0]
            return new

        return pattern.sub(one, text)

    def _is_public(self, host: str) -> bool:
        name = host.lower().rstrip(".")
        return name in self._common or any(name == public or name.endswith(f".{public}") for public in self._public)

    def _address(self, match: re.Match[str]) -> str:
        scheme, host = match[1], match[2]
        if scheme.lower().removesuffix("://") in _PLACES or self._is_public(host) or host.replace(".", "").isdigit():
            return match[0]  # numbers are looked at as such
        return scheme + HOST

    def _ipv4(self, match: re.Match[str]) -> str:
        parts = match.groups()
        if any(int(part) > 255 or (part[0] == "0" and part != "0") for part in parts):
            return match[0]
        if parts[0] in ("0", "127", "255") or self._is_version(
            match.string[max(0, match.start() - 60) : match.start()], match
        ):
            return match[0]
        return IP

    def _is_version(self, before: str, match: re.Match[str]) -> bool:
        if _PIN.search(before) or _BUILD_END.match(match.string, match.end()):
            return True
        named = _BEFORE.search(before)
        if named is None:
            return False
        name = named[1].lower()
        if name.startswith(self._prefixes) or name.rpartition(".")[2] in self._version_words:
            return True
        if normalise(name) in self._packages or is_known(name):
            return True
        return before[-1:] in "-_v" and bool(_FILE_END.match(match.string, match.end()))

    def _ipv6(self, match: re.Match[str]) -> str:
        groups = [group for group in match[0].split(":") if group]
        # Times, slices ("::2") and names of C++ have colons as well.
        if len(groups) < 3 and not any(len(group) == 4 for group in groups):
            return match[0]
        try:
            address = IPv6Address(match[0])
        except AddressValueError:
            return match[0]
        return match[0] if address.is_loopback or address.is_unspecified else IP
