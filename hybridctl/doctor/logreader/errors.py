"""Lines of one process → its errors: tracebacks, chains of exceptions, messages over several lines, faults, cut-off excerpts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hybridctl.doctor.logreader.faults import fault_of, what_of
from hybridctl.doctor.logreader.records import Line, LogError
from hybridctl.doctor.logreader.wrappers import is_announcement, is_soft, is_wrapper

MOST_ERRORS = 400
MOST_TEXT = 120
"""Lines of one error that are kept."""

_BEGIN = re.compile(r"Traceback \(most recent call (?:last|first)\)")
_FRAME = re.compile(r"\s*(?:\|\s*)?File [\"“](?P<path>[^\"”]+)[\"”], line (?P<line>\d+)(?:, in (?P<name>.+))?$")
_CHAIN = re.compile(
    r"(?:During handling of the above exception, another exception|The above exception was the direct cause)"
)
_NAME = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*"
_KNOWN = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*(?:[A-Za-z_]\w*?(?:Error|Exception|Failure|Failed|Interrupt|Exit|Died|Timeout|OutOfResources)"
    r"|StopIteration|AssertionError|BackendCompilerFailed|CancelledError|Unsupported|RayTaskError|ContextTerminated|ConnectTimeout))"
    r"(?P<arg>\([\w. ]+\))?(?::(?:\s+|$)(?P<message>.*)|\s*$)"
)
_LOOSE = re.compile(rf"(?P<type>{_NAME})(?P<arg>\([\w. ]+\))?(?::\s+(?P<message>.*)|\s*$)")
_WARNING_TYPE = re.compile(r"(?:\w+\.)*\w*Warning\b")
_CODE = re.compile(r"\s*(?:assert\s+\S.*|raise\s+[A-Z]\w*(?:\.\w+)*\(.*)$")
_CARETS = re.compile(r"[\s~^|]+$")
PROGRESS = re.compile(r"\d{1,3}%\s?(?:\||Completed)|\b\d+/\d+ \[\d+:\d+|^\s*[█▏▎▍▌▋▊▉#]+\s*$")
_PROCESS = re.compile(r"Process \S+:$")
_IGNORED = re.compile(r"Exception ignored in|--- Logging error ---")


class _Open:
    """An error that is being read."""

    def __init__(self, line: Line, chain_id: int, chain: int, kind: str) -> None:
        self.lines: list[Line] = [line]
        self.frames = 0
        self.frame: tuple[Line, str] | None = None
        self.header: Line | None = None
        self.type: str | None = None
        self.message = ""
        self.chain_id, self.chain, self.kind = chain_id, chain, kind
        self.grows = True
        self.soft = False
        self.after_frame = False

    @property
    def in_frames(self) -> bool:
        return self.header is None

    def same_source(self, line: Line) -> bool:
        first = self.lines[0]
        return line.level == first.level and (line.where == first.where or not first.where)


class Reader:
    """Feeds on the lines of one process, in order."""

    def __init__(self, first_chain: int = 0) -> None:
        self.errors: list[LogError] = []
        self._open: _Open | None = None
        self._next_chain = first_chain
        self._link: tuple[int, int] | None = None
        self._ignoring = False

    def feed(self, line: Line) -> None:
        body = line.body
        if PROGRESS.search(body[:300]):
            return
        if _IGNORED.search(body[:200]):
            self._close()
            self._ignoring = True
            return
        current = self._open
        if _CHAIN.search(body[:200]):
            self._close()
            if self.errors:
                self._link = (self.errors[-1].chain_id, self.errors[-1].chain + 1)
            return
        if _BEGIN.search(body):
            if current is None or not (current.in_frames and not current.frames):
                self._start(line, "exception")
            return
        if m := _FRAME.match(body):
            self._frame(line, m)
            return
        if current is not None and self._continues(current, line):
            return
        self._idle(line)

    def finish(self) -> list[LogError]:
        self._close()
        return self.errors

    def _start(self, line: Line, kind: str) -> _Open:
        self._close()
        if self._link is not None:
            chain_id, chain = self._link
            self._link = None
        else:
            chain_id, chain = self._next_chain, 0
            self._next_chain += 1
        self._open = _Open(line, chain_id, chain, kind)
        self._open.soft = line.level in ("WARNING", "INFO", "DEBUG") and line.style != "sglang"
        return self._open

    def _frame(self, line: Line, m: re.Match[str]) -> None:
        current = self._open
        if current is not None and current.kind == "fault" and current.grows:  # a native crash prints its own frames
            self._add(current, line)
            return
        if current is not None and current.kind == "line" and current.same_source(line):
            # What looked like a logged sentence was the code line of a frame that is cut off.
            current.header, current.message, current.kind = None, "", "exception"
        if current is None or not current.in_frames:
            current = self._start(line, "exception")
        else:
            self._add(current, line)
        current.frames += 1
        current.after_frame = True
        current.frame = (line, f"{m['path']}:{m['line']}" + (f" in {m['name'].strip()}" if m["name"] else ""))

    @staticmethod
    def _add(current: _Open, line: Line) -> None:
        if len(current.lines) < MOST_TEXT:
            current.lines.append(line)

    def _continues(self, current: _Open, line: Line) -> bool:
        body, stripped = line.body, line.body.strip()
        if current.in_frames:
            return self._in_frames(current, line, body, stripped)
        if not current.grows or len(current.lines) >= MOST_TEXT:
            return False
        if not current.same_source(line) or (line.level and not line.where and current.kind != "line"):
            return False
        if _KNOWN.match(body) and not _WARNING_TYPE.match(body):
            return False
        if current.kind == "fault" and "what():" not in body:
            fault = fault_of(body)
            if fault is not None and fault[0] != current.type:
                return False
        if current.kind == "line" and (line.stamp != current.lines[-1].stamp or not line.stamp):
            return False
        if _PROCESS.match(stripped):
            return False
        self._add(current, line)
        return True

    def _in_frames(self, current: _Open, line: Line, body: str, stripped: str) -> bool:
        if line.level and not current.same_source(line):
            return False
        if not line.level and current.lines[0].level and current.lines[0].style == "vllm":
            return False
        after_frame, current.after_frame = current.after_frame, False
        if not stripped or _CARETS.match(body) or body[:4].isspace():
            if stripped:
                self._add(current, line)
            return True
        known = _KNOWN.match(body.lstrip(" |+-"))
        if (known and not after_frame) or (
            known and ": " in body and not body.startswith(("raise", "return", "except"))
        ):
            self._head(current, line, known)
            return True
        if after_frame:
            self._add(current, line)  # the code line of a frame whose indentation was lost
            return True
        loose = _LOOSE.match(body)
        if loose and ("." in loose["type"] or loose["type"][:1].isupper()) and not _WARNING_TYPE.match(body):
            self._head(current, line, loose)
            return True
        if line.level and current.same_source(line):
            self._add(current, line)
            return True
        return False

    @staticmethod
    def _head(current: _Open, line: Line, m: re.Match[str]) -> None:
        current.lines.append(line)
        current.header = line
        current.type = m["type"] + (m["arg"] or "")
        current.message = m["message"] or ""

    def _idle(self, line: Line) -> None:
        body = line.body
        self._close()
        self._ignoring = self._ignoring and not line.level and not body.strip()
        m = _KNOWN.match(body) or (_KNOWN.match(body.lstrip()) if line.level == "ERROR" else None)
        if m and not _WARNING_TYPE.match(body) and line.level not in ("INFO", "DEBUG"):
            current = self._start(line, "exception")
            current.lines.clear()
            self._head(current, line, m)
            return
        if line.level in ("INFO", "WARNING", "DEBUG") and line.style != "kernel":
            if line.level == "INFO":
                self._link = None
            return
        fault = fault_of(body)
        if fault is not None and not (line.level == "ERROR" and line.where):
            name, more = fault
            current = self._start(line, "fault")
            current.header, current.type, current.message, current.grows = line, name, body.strip(), more
            return
        if _CODE.match(body) and not line.level:
            current = self._start(line, "fragment")
            current.frame = (line, body.strip())
            self._close()
            return
        if line.level == "ERROR" and line.where and body[:4].isspace() and body.strip():
            # A code line whose frame is cut off; the exception may follow.
            current = self._start(line, "exception")
            current.frame = (line, body.strip())
            return
        if line.level == "ERROR" and body.strip() and not is_announcement(body):
            current = self._start(line, "line")
            current.header, current.message = line, body.strip()

    def _close(self) -> None:
        current, self._open = self._open, None
        if current is None or len(self.errors) >= MOST_ERRORS:
            return
        if self._ignoring:
            self._ignoring = False
            return
        if current.header is None and current.frame is None:
            return  # a traceback that was announced and not printed
        lines = current.lines
        while len(lines) > 1 and not lines[-1].body.strip():
            lines.pop()
        text = "\n".join(x.body for x in lines)
        message = current.message
        if current.header is not None:
            rest = lines[lines.index(current.header) + 1 :]
            message = "\n".join([message, *(x.body for x in rest)]).strip()
            if current.kind == "fault" and (said := what_of(text)):
                message = said
        elif current.frame is not None:
            message = current.frame[0].body.strip()
        at = current.header or (current.frame[0] if current.frame else lines[0])
        first = lines[0]
        kind = "fragment" if current.header is None else current.kind
        self.errors.append(
            LogError(
                process=first.process or first.container,
                line=at.number,
                type=current.type,
                message=message,
                text=text,
                chain=current.chain,
                first_line=first.number,
                last_line=lines[-1].number,
                frame=current.frame[1] if current.frame else "",
                kind=kind,
                wrapper=is_wrapper(current.type, message) if kind != "fragment" else False,
                soft=current.soft or is_soft(current.type, message),
                clock=first.clock,
                chain_id=current.chain_id,
                key=first.key,
                lines=[x.number for x in lines],
            )
        )


def read_errors(lines: Iterable[Line]) -> list[LogError]:
    """The errors of all processes, each process read by itself, in the order of the log."""
    readers: dict[str, Reader] = {}
    for line in lines:
        reader = readers.get(line.key)
        if reader is None:
            reader = readers[line.key] = Reader(len(readers) * 100_000)
        reader.feed(line)
    found = [e for reader in readers.values() for e in reader.finish()]
    return sorted(found, key=lambda e: (e.line, e.chain))
