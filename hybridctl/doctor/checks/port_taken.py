"""Is the port of the launch line free?"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.findings import Evidence, Fix, Outcome

_DEFAULTS = {"vllm": 8000, "sglang": 30000}
_SOURCES = [
    "https://github.com/vllm-project/vllm/issues/7514",
    "https://github.com/vllm-project/vllm/issues/11617",
]


def run(context: Context) -> Outcome:
    facts = context.facts
    taken = facts.get("platform.ports")
    if taken is None or not isinstance(taken.value, list) or taken.origin.source != "local":
        return CHECK.unknown("platform.ports of this machine")
    if facts.get("process.pid"):
        return CHECK.not_applicable("the server runs")
    if facts.get("log.reached"):
        return CHECK.not_applicable("the log is of a start that is over")
    if facts.value("command.form") not in ("serve", "module"):
        return CHECK.unknown("the launch line of a server on this machine")
    engine = read.engine(facts)
    port = read.number(facts, ["flag.port"], default=_DEFAULTS.get(engine or ""))
    if port is None:
        return CHECK.unknown("flag.port")
    if str(port.value) not in taken.value:
        return CHECK.ok(f"nothing listens on port {port.value}")
    model = facts.value("model.name") or "MODEL"
    free = next(p for p in range(port.value + 1, port.value + 1 + len(taken.value) + 1) if str(p) not in taken.value)
    command = f"vllm serve {model} --port {free}" if engine == "vllm" else None
    return CHECK.found(
        read.finding(
            "port-in-use",
            f"Port {port.value} is taken by another process",
            "config",
            "error",
            "Something listens there already, often an earlier server that still holds its GPU memory. The start ends in 'address "
            "already in use'.",
            [port.evidence, Evidence("platform.ports", str(port.value), "free", str(taken.origin), taken.origin.quote)],
            [
                Fix("See who it is, and end it if it is a server left over.", f"ss -ltnp | grep ':{port.value} '"),
                Fix(f"Or take another port, such as {free}.", command),
            ],
            _SOURCES,
            "reporter-confirmed",
        )
    )


CHECK = Check("port-taken", "Port of the launch line", run, phase="config")
