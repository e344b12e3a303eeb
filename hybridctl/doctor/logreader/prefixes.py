"""Taking the prefixes off a log line: who wrote it, when, how loud. Prefixes nest (compose, then vLLM, then rank)."""

from __future__ import annotations

import re

from hybridctl.doctor.logreader.records import MAX_LINE, Line
from hybridctl.patterns import late

ANSI = late(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,300}(?:\x07|\x1b\\)|\x1b[@-Z\\^_]")
_PASTED_ESCAPE = late(r"ESC\[[0-9;]*m|\^\[\[[0-9;]*m|(?<![\w\]])\[[0-9]{1,2}(?:;[0-9]{1,3})*m")
_CONTROL = late(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")

_LEVELS = {
    "TRACE": "DEBUG", "DEBUG": "DEBUG", "INFO": "INFO", "NOTICE": "INFO", "WARNING": "WARNING", "WARN": "WARNING",
    "ERROR": "ERROR", "ERR": "ERROR", "CRITICAL": "ERROR", "FATAL": "ERROR", "SEVERE": "ERROR",
    "I": "INFO", "D": "DEBUG", "V": "DEBUG", "W": "WARNING", "E": "ERROR", "F": "ERROR", "C": "ERROR",
}  # fmt: skip
_LEVEL = r"(?P<level>TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_ISO = r"(?P<stamp>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"

# Each pattern eats one prefix. At most one blank is eaten behind it: what follows is the indentation of a traceback.
_PAREN = late(r"\((?P<process>[A-Za-z_][\w .:/=-]{0,60}?[ ,]?pid=\d+|pid=\d+|raylet)(?:, ip=[\w.:]+)?(?:, [\w=]+)?\) ?")
_VLLM = late(_LEVEL + r" (?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) (?:\[?(?P<where>[\w./\\-]+(?:\.\w+)?:\d+)\] ?)?")
_UVICORN = late(_LEVEL + r":(?: +|\t+|$)")
_PLAIN_LEVEL = late(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL):(?P<name>[\w.]+): ?")
_JOURNAL = late(
    r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?) (?P<host>\S+) (?P<unit>[\w./@:-]+)(?:\[\d+\])?: ?"
)
_ISO_JOURNAL = late(_ISO + r" (?P<host>\S+) (?P<unit>[\w./@-]+)\[\d+\]: ?")
_STAMP = late(
    _ISO + r"(?:\s+std(?:out|err) [FP] |\s*\|\s*" + _LEVEL.replace("level", "l1") + r"\s*\|\s*"
    r"|\s+-\s+[\w.]+\s+-\s+" + _LEVEL.replace("level", "l2") + r"\s+-\s"
    r"|\s+\[?" + _LEVEL.replace("level", "l3") + r"\]?:?(?:\s+[\w./\\-]+:\d+(?:\]| --| -)?)?\s(?!\d\d-\d\d )"
    r"|[ \t]|$)"
)  # fmt: skip
_COMPOSE = late(r"(?P<container>[A-Za-z][\w.-]*) *\| ?(?=\S|\s|$)")
_POD = late(
    r"(?P<container>[a-z0-9][a-z0-9.-]*-(?:[a-z0-9]{6,10}-)?(?:[a-z0-9]{5}|\d{1,3})) +"
    r"(?P<inner>[a-z][a-z0-9-]*) (?=[(\[]|INFO|ERROR|WARN|DEBUG|CRITICAL|\d{4}-|Traceback| +File |[A-Za-z.]+Error|\s)"
)
_RANK = late(r"\[(?P<process>rank ?\d+)\]: ?")
_SGLANG = late(r"\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)(?P<tags>(?: [A-Z]{2,3}\d+)*)\] ?")
_GLOG = late(r"\[?(?P<level>[IWEFCDV])(?P<stamp>\d{4} \d\d:\d\d:\d\d(?:\.\d+)?)\s+(?:[^\]]{0,160}\] ?)?")
_KUBECTL = late(r"\[pod/(?P<container>[\w./-]+)\] ?")
_DMESG = late(r"\[ *\d+\.\d{3,6}\] (?:\[T\d+\] )?")
_DMESG_T = late(r"\[[A-Z][a-z]{2} (?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) \d{4}\] ")
_TAG = late(r"\[(?P<tag>[A-Z][A-Z _-]{1,24})\]:? ?")
_LOGFMT = late(r"time=\"?" + _ISO + r"\"? level=(?P<level>\w+) (?:source=(?P<where>\S+) )?(?=msg=)")
_LOGFMT_MSG = late(r'msg="((?:[^"\\]|\\.)*)"')
_NCCL = late(r"(?P<process>[\w.-]+:\d+):\d+ \[\d+\] (?=NCCL )")
_BOX = late(r"[│┃❱>]\s?(?=.)")
_SYSTEMD = late(r"(?:kernel: )?(?:\[ *\d+\.\d+\] )?")

_BY_FIRST: dict[str, tuple[tuple[str, re.Pattern[str]], ...]] = {
    "(": (("vllm", _PAREN),),
    "[": (("rank", _RANK), ("sglang", _SGLANG), ("kubectl", _KUBECTL), ("glog", _GLOG), ("kernel", _DMESG),
          ("kernel", _DMESG_T), ("tag", _TAG)),
    "t": (("logfmt", _LOGFMT), ("pod", _POD), ("compose", _COMPOSE), ("nccl", _NCCL)),
}  # fmt: skip
_DIGIT = (("journal", _ISO_JOURNAL), ("stamp", _STAMP), ("pod", _POD))
_UPPER = (("vllm", _VLLM), ("uvicorn", _UVICORN), ("plain", _PLAIN_LEVEL), ("journal", _JOURNAL), ("glog", _GLOG),
          ("compose", _COMPOSE), ("nccl", _NCCL))  # fmt: skip
_LOWER = (("pod", _POD), ("compose", _COMPOSE), ("nccl", _NCCL))
_OTHER = (("box", _BOX),)

_MONTHS = {
    m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])
}
_DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_STAMP_ISO = late(r"\d{4}[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?")
_STAMP_SHORT = late(r"(\d\d)-?(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
_STAMP_WORDS = late(r"([A-Z][a-z]{2}) +(\d+) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?")


def strip_codes(text: str) -> str:
    """The text without colour codes (also as pasted from an editor) and control characters."""
    if "\x1b" in text:
        text = ANSI.sub("", text)
    if "ESC[" in text or "^[[" in text or ("[" in text and "m" in text and _PASTED_ESCAPE.search(text)):
        text = _PASTED_ESCAPE.sub("", text)
    return _CONTROL.sub("", text)


def parse_line(number: int, text: str) -> Line:
    """Take one line apart. Never raises, whatever the text."""
    text = strip_codes(text[: MAX_LINE * 2])[:MAX_LINE].rstrip()
    line = Line(number, text, text)
    body = text
    for _ in range(8):
        if not body:
            break
        eaten = _eat(line, body)
        if eaten is None:
            break
        body = eaten
    line.body = body
    if line.style == "logfmt" and (m := _LOGFMT_MSG.search(body)):
        line.body = m[1].replace('\\"', '"') + body[m.end() :]
    if line.process and not line.style:
        line.style = "vllm"
    return line


def _patterns(first: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    if first in _BY_FIRST:
        return _BY_FIRST[first]
    if first.isdigit():
        return _DIGIT
    if "A" <= first <= "Z":
        return _UPPER
    if "a" <= first <= "z":
        return _LOWER
    return _OTHER if first in "│┃❱>" else ()


def _eat(line: Line, body: str) -> str | None:
    for style, pattern in _patterns(body[0]):
        m = pattern.match(body)
        if m is None or m.end() == 0:
            continue
        if style == "compose" and line.container:
            continue
        _note(line, style, m.groupdict())
        return body[m.end() :]
    return None


def _note(line: Line, style: str, found: dict[str, str | None]) -> None:
    process = found.get("process")
    if process:
        line.process = process.replace(",", "")
    if tags := found.get("tags"):
        line.process = tags.strip()
    if container := found.get("container"):
        line.container = container
    level = found.get("level") or found.get("l1") or found.get("l2") or found.get("l3")
    if (tag := found.get("tag")) and tag in _LEVELS:
        level = tag
    if level and level.upper() in _LEVELS:
        line.level = _LEVELS[level.upper()]
    if where := found.get("where"):
        line.where = where
    if stamp := found.get("stamp"):
        line.stamp = stamp
        line.clock = clock_of(stamp)
    if style not in ("tag", "box", "compose", "pod", "kubectl", "journal"):
        line.style = style
    elif not line.style and style == "journal":
        line.style = "kernel" if found.get("unit") == "kernel" else ""


def clock_of(stamp: str) -> float | None:
    """Seconds since 1 January of a leap year, for the time stamps of vLLM, ISO, syslog and glog; ``None`` when unreadable."""
    m = _STAMP_ISO.match(stamp) or _STAMP_SHORT.match(stamp)
    if m:
        month = int(m[1]) - 1
    else:
        m = _STAMP_WORDS.match(stamp)
        if not m or m[1] not in _MONTHS:
            return None
        month = _MONTHS[m[1]]
    if not 0 <= month < 12:
        return None
    day, hour, minute, second = (int(m[i]) for i in (2, 3, 4, 5))
    fraction = float("0." + m[6]) if m[6] else 0.0
    return (_DAYS_BEFORE[month] + day - 1) * 86400 + hour * 3600 + minute * 60 + second + fraction


def rank_of(process: str) -> int:
    """How deep a process stands: 0 worker, 1 engine core, 2 not said, 3 API server. Deeper ones fail first."""
    lowered = process.lower()
    if "worker" in lowered or lowered.startswith(("rank", "tp", "dp", "pp", "ep")):
        return 0
    if "enginecore" in lowered or "engine" in lowered:
        return 1
    return 3 if "apiserver" in lowered else 2
