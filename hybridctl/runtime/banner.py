"""What is on, in words: said once a server is ready, and by ``serve --print`` before."""

from __future__ import annotations

import json
from typing import Any

from hybridctl.runtime.launch import Launch
from hybridctl.runtime.ready import Ready

EXAMPLE = "def fibonacci(n):"


def lines(launch: Launch, ready: Ready, log: str) -> list[tuple[str, str]]:
    """Rows (label, text); a label may be empty: the row goes on."""
    rows = [("model", f"{ready.model} ({launch.checkpoint.location})")]
    if (known := launch.checkpoint.prepared) is not None:
        at = f" at {known.revision[:12]}" if known.revision else ""
        made = (
            f"{known.created:%Y-%m-%d %H:%M %Z} from {known.model}{at} for vLLM {known.vllm}, routing: {known.routing}"
        )
        rows.append(("prepared", made))
    if told := summary(launch):
        rows.append(("about", told))
    rows += injection(launch, ready)
    rows += names(launch, ready)
    rows.append(("address", launch.url))
    if ready.proof and launch.routed:
        rows.append(("counters", f"{launch.url}/metrics: hybridctl_kernel_tokens_total by kernel"))
    rows.append(("log", log))
    return rows


def commands(launch: Launch, ready: Ready) -> list[str]:
    """What to type next, each a line for copying."""
    key = " -H 'Authorization: Bearer …'" if launch.api_key else ""
    local = launch.url.replace("127.0.0.1", "localhost")
    body = {"prompt": EXAMPLE, "max_tokens": 100}
    out = [f"curl {local}/generate{key} -d '{json.dumps(body)}'"] if ready.generate else []
    body = {"model": ready.model, **body}
    out.append(f"curl {local}/v1/completions{key} -H 'Content-Type: application/json' -d '{json.dumps(body)}'")
    return [*out, f"hybridctl verify {local}"] if ready.proof and launch.routed else out


def summary(launch: Launch) -> str:
    """What a prepared model is and what was patched, as prepare said it; of the dispatcher only where it is so now."""
    known = launch.checkpoint.prepared
    told = known.made.summary if known is not None and known.made is not None else ""
    return told if launch.routed == launch.checkpoint.routed else told.partition(" Dispatcher: ")[0]


def names(launch: Launch, ready: Ready | None = None) -> list[tuple[str, str]]:
    """Tensors that are loaded under other names, and a legacy name of the class."""
    rows = (
        [("class", f"{launch.alias}, for which {launch.checkpoint.architecture} is a legacy name")]
        if launch.alias
        else []
    )
    load = launch.checkpoint.load
    if load is None:
        return rows
    proved = ready.proof.names if ready and ready.proof else {}
    if not proved:
        return [*rows, ("names", f"{len(load.names)} rules, once every worker has proved it")]
    first = proved[min(proved)]
    where = f"{len(proved)} worker" + ("" if len(proved) == 1 else "s")
    for i, row in enumerate(first["rules"]):
        old, new = row["example"]
        rows.append(("names" if i == 0 else "", f"{row['tensors']} tensors renamed in {where}, such as {old} → {new}"))
    if first.get("empty"):
        rows.append(("", f"nothing was loaded into {first['empty']}"))
    return rows


def injection(launch: Launch, ready: Ready | None = None) -> list[tuple[str, str]]:
    """Whether the dispatcher is injected, and by which rule it routes."""
    checkpoint = launch.checkpoint
    if not launch.routed:
        if checkpoint.routed:
            return [("injected", "no (--no-hybrid): full attention at every position, though the checkpoint is routed")]
        why = "config.json declares no hybrid_config" if checkpoint.config else "its config.json is not at hand"
        rows = [("injected", f"no: {why}; vLLM serves the model as it is")]
        return rows if summary(launch) else [*rows, ("", "to see routing: hybridctl serve --demo")]
    rule: list[str] = []
    frees: list[Any] = []
    if ready and ready.proof and ready.proof.workers:
        worker = ready.proof.workers[min(ready.proof.workers)]
        layers = worker["layers"]
        size = len(ready.proof.workers)
        where = f"{size} worker" + ("" if size == 1 else "s")
        processes = len(ready.proof.registered)
        count = len({layer.get("layer", name) for name, layer in layers.items()})  # a layer may be in parts
        said = f"yes: {count} layers in {where}, proved by {processes} process" + ("" if processes == 1 else "es")
        rule = [str(line) for line in worker.get("banner", ())]
        frees = sorted({layer.get("frees_from") for layer in layers.values()} - {None})
    else:
        said = "yes, once every process has proved it"
        dispatcher = checkpoint.dispatcher(launch.tensor_parallel_size)
        if dispatcher is not None:
            rule = dispatcher.banner()
            groups = range(len(dispatcher.groups))
            starts = (dispatcher.pages_end(layer, group) for layer in dispatcher.layers for group in groups)
            frees = sorted({s for s in starts if s is not None})
    if any(s.name == "HYBRIDCTL_KEEP_KV" for s in launch.env):
        pages = "kept by vLLM's own rules (--keep-kv)"
    elif frees:
        pages = f"none from position {', '.join(map(str, frees))} on, and those below freed once absorbed (--keep-kv keeps them)"
    else:
        pages = "kept: some tokens take flash for ever"
    rows = [("injected", said)]
    rows += [("rule" if i == 0 else "", line) for i, line in enumerate(rule)]
    thresholds = checkpoint.config["hybrid_config"].get("thresholds") if checkpoint.config else None
    if thresholds:
        rows.append(("thresholds", ", ".join(f"{k} {v}" for k, v in thresholds.items())))
    rows.append(("K/V pages", pages))
    return rows
