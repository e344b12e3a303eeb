"""Launch lines in YAML: docker compose, Kubernetes, and the file that ``vllm serve --config`` takes."""

from __future__ import annotations

import json
import re

from hybridctl.doctor.facts import yaml_nodes as y
from hybridctl.doctor.facts.command_docker import (
    Pieces,
    Run,
    bind_source,
    state_devices,
    state_gpus,
    state_image,
    state_shm,
)
from hybridctl.doctor.facts.draft import Draft
from hybridctl.doctor.facts.flags import Given, state_flags
from hybridctl.doctor.facts.launch_facts import state_contained
from hybridctl.doctor.facts.names import plausible_model
from hybridctl.doctor.facts.shell import Word
from hybridctl.doctor.facts.yaml_nodes import Node
from hybridctl.flags import flag_window
from hybridctl.patterns import late

_BEGIN = late(r"^[ \t]*(?:services|apiVersion|containers)[ \t]*:", re.MULTILINE)
_FLAG_LINE = late(r"^([A-Za-z][A-Za-z0-9_-]{1,60})[ \t]*:(?:[ \t]|$)", re.MULTILINE)
_DEFAULT = late(r"\$\{\w{1,100}:?-([^${}]{0,200})\}")
_RUNNING_HEAD = late(r"^(?:---[^\n]*|#[^\n]*|[\w.\"'-]+[ \t]*:[^\n]*|[ \t]*)$")


def read_yaml(text: str, draft: Draft) -> bool:
    """State what a YAML file says; whether it was one that starts an engine."""
    begin = _BEGIN.search(text)
    if begin is None:
        return _flag_file(text, draft)
    offset = 0 if _RUNNING_HEAD.match(text.partition("\n")[0]) else text.rfind("\n", 0, begin.start()) + 1
    fence = text.find("\n```", begin.end())
    reader = _Reader(text, offset, draft)
    for root in y.documents(text, offset, len(text) if fence < 0 else fence):
        if reader.compose(root) or reader.kubernetes(root):
            return True
    return False


def _with_default(value: str) -> str:
    """Compose puts in the default of ``${NAME:-default}`` when the variable is not set."""
    return _DEFAULT.sub(lambda m: m[1], value)


class _Reader:
    def __init__(self, text: str, offset: int, draft: Draft) -> None:
        self.text, self.offset, self.draft = text, offset, draft

    def compose(self, root: Node) -> bool:
        return any(self._try(self._service, service) for _, service in y.pairs(y.get(root, "services")))

    def kubernetes(self, root: Node) -> bool:
        return any(
            self._try(self._pod_container, pod, container)
            for pod in y.walk(root)
            for container in y.items(y.get(pod, "containers"))
        )

    def _try(self, read: object, *nodes: Node) -> bool:
        """State what one service says only when an engine runs in it."""
        inner = self.draft.branch()
        assert callable(read)
        if not read(inner, *nodes):
            return False
        self.draft.facts.extend(inner.facts)
        return True

    def _word(self, node: Node) -> Word:
        return y.word(node, self.offset)

    def _pair(self, key: Node, value: Node) -> tuple[int, int]:
        return self._word(key).start, self._word(value).end

    def _entry(self, node: Node, name: str) -> tuple[str, int, int] | None:
        """A scalar entry of a mapping: its text, and the place from key to value."""
        for key, value in y.pairs(node):
            if key.value == name and (text := y.scalar(value)) is not None:
                return _with_default(text), *self._pair(key, value)
        return None

    def _service(self, draft: Draft, service: Node) -> bool:
        run = Run()
        if entry := self._entry(service, "image"):
            run.image = Word(*entry)
            state_image(*entry, draft)
        entrypoint = y.words(y.get(service, "entrypoint"), self.text, self.offset)
        run.arguments = entrypoint + y.words(y.get(service, "command"), self.text, self.offset)
        if entrypoint:
            run.entrypoint, run.arguments = run.arguments[0], run.arguments[1:]
        self._environment(y.get(service, "environment"), draft)
        self._volumes(y.get(service, "volumes"), draft)
        if entry := self._entry(service, "shm_size"):
            state_shm(*entry, draft)
        if (entry := self._entry(service, "ipc")) and entry[0] == "host":
            draft.say("command.shm", "host", entry[1], entry[2])
        if entry := self._entry(service, "runtime"):
            draft.say("command.runtime", *entry)
        if entry := self._entry(service, "gpus"):
            draft.say("command.gpus", *entry)
            state_gpus(*entry, draft)
        self._capabilities(y.get(service, "cap_add"), draft)
        for device in y.items(y.get(service, "deploy", "resources", "reservations", "devices")):
            ids = y.get(device, "device_ids")
            if y.kind(ids) == "sequence" and y.items(ids):
                place = self._word(ids)
                draft.say("gpu.count", len(y.items(ids)), place.start, place.end)
            elif entry := self._entry(device, "count"):
                draft.say("command.gpus", *entry)
                state_gpus(*entry, draft)
        return state_contained(run, "compose", draft, _with_default)

    def _environment(self, node: Node, draft: Draft) -> None:
        for key, value in y.pairs(node):
            if (text := y.scalar(value)) is not None:
                self._variable(key.value, _with_default(text), *self._pair(key, value), draft)
        for item in y.items(node):
            name, equals, value = (y.scalar(item) or "").partition("=")
            if equals:
                place = self._word(item)
                self._variable(name, _with_default(value), place.start, place.end, draft)

    def _variable(self, name: str, value: str, start: int, end: int, draft: Draft) -> None:
        draft.say_env(name, value, start, end)
        state_devices(name, value, start, end, draft)

    def _volumes(self, node: Node, draft: Draft) -> None:
        mounts = Pieces()
        for item in y.items(node):
            place = self._word(item) if y.kind(item) == "scalar" else None
            if place is not None:
                if host := bind_source(_with_default(place.value)):
                    mounts.add(host, place.start, place.end)
            elif (entry := self._entry(item, "source")) and (y.scalar(y.get(item, "type")) or "bind") == "bind":
                mounts.add(*entry)
        mounts.say("command.mounts", draft)

    def _capabilities(self, node: Node, draft: Draft) -> None:
        caps = Pieces()
        for item in y.items(node):
            if y.scalar(item):
                place = self._word(item)
                caps.add(place.value.upper().removeprefix("CAP_"), place.start, place.end)
        caps.say("command.caps", draft)

    def _pod_container(self, draft: Draft, pod: Node, container: Node) -> bool:
        run = Run()
        if entry := self._entry(container, "image"):
            run.image = Word(*entry)
            state_image(*entry, draft)
        command = y.words(y.get(container, "command"), self.text, self.offset)
        run.arguments = command + y.words(y.get(container, "args"), self.text, self.offset)
        if command:
            run.entrypoint, run.arguments = run.arguments[0], run.arguments[1:]
        for item in y.items(y.get(container, "env")):
            name, value = y.scalar(y.get(item, "name")), y.get(item, "value")
            if name and (text := y.scalar(value)) is not None:
                self._variable(name, text, *self._pair(y.get(item, "name"), value), draft)
        for key, value in y.pairs(y.get(container, "resources", "limits")):
            if key.value.endswith("/gpu") and (y.scalar(value) or "").isdigit():
                draft.say("gpu.count", int(value.value[:6]), *self._pair(key, value))
        self._capabilities(y.get(container, "securityContext", "capabilities", "add"), draft)
        if (entry := self._entry(pod, "hostIPC")) and entry[0].lower() == "true":
            draft.say("command.shm", "host", entry[1], entry[2])
        self._pod_volumes(pod, draft)
        return state_contained(run, "kubernetes", draft, str)

    def _pod_volumes(self, pod: Node, draft: Draft) -> None:
        mounts = Pieces()
        for volume in y.items(y.get(pod, "volumes")):
            medium = self._entry(y.get(volume, "emptyDir"), "medium")
            if medium and medium[0] == "Memory":
                limit = self._entry(y.get(volume, "emptyDir"), "sizeLimit")
                state_shm(*(limit or medium), draft)
            if entry := self._entry(y.get(volume, "hostPath"), "path"):
                mounts.add(*entry)
        mounts.say("command.mounts", draft)


def _flag_file(text: str, draft: Draft) -> bool:
    """A mapping of flags, at least two of them vLLM's."""
    names = {m[1].replace("_", "-") for m in _FLAG_LINE.finditer(text)}
    known = [n for n in names if n != "model" and flag_window(n) is not None]
    if len(known) < (1 if "model" in names else 2):
        return False
    roots = y.documents(text, 0, len(text))
    if len(roots) != 1 or y.kind(roots[0]) != "mapping":
        return False
    given = []
    for key, value in y.pairs(roots[0]):
        start, end = y.word(key, 0).start, y.word(value, 0).end
        if y.kind(value) == "scalar":
            content = y.scalar(value)
            if content is None:
                continue
        else:
            tree = y.plain(value)
            flat = isinstance(tree, list) and all(isinstance(v, str) for v in tree)
            content = " ".join(tree) if flat else json.dumps(tree)
        given.append(Given(key.value, content, start, end))
        if key.value in ("model", "model_tag") and plausible_model(content):
            draft.say("model.name", content, start, end)
    first = given[0] if given else None
    if first is None:
        return False
    whole = text.strip().partition("\n")[0]
    place = text.find(whole)
    draft.say("engine", "vllm", place, place + len(whole))
    draft.say("command.form", "serve", place, place + len(whole))
    state_flags(given, "vllm", draft, str)
    return True
