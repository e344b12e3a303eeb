"""What ``hybridctl prepare`` will do, worked out before anything is written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybridctl import overlays
from hybridctl.architectures import backend_takes, registered
from hybridctl.errors import UsageError
from hybridctl.model.config import ModelConfig, read_config
from hybridctl.model.plan import LayerPlan, plan_layers
from hybridctl.overlays import Loading, NameRule, StoredFlag
from hybridctl.patchers import launch_files, loading, routing
from hybridctl.patchers.audit import Audit
from hybridctl.patchers.config import Change, Patched, Versions, patch, unified
from hybridctl.patchers.overlay import Materialize
from hybridctl.patchers.recipe_flags import Recipe, family_of, recipe
from hybridctl.patchers.source import Source
from hybridctl.runtime.overlay_min import PREFIX, plain_architecture, routed_architecture
from hybridctl.runtime.vllm_plugin.routing import not_executed
from hybridctl.runtime.vllm_plugin.window import check_version
from hybridctl.versions import parse_version


@dataclass
class Plan:
    """One overlay that is to be made.

    Attributes:
        routing: ``none``, ``article``, or the name of the file that the block is from.
        words: what the model is and what becomes of it, in sentences.
        warnings: what the user must know before it is served, a line each.
    """

    source: Source
    versions: Versions
    patched: Patched
    layers: LayerPlan
    routing: str
    routed: bool
    folder: Path
    how: Materialize
    flags: list[StoredFlag] = field(default_factory=list)
    words: str = ""
    warnings: list[str] = field(default_factory=list)
    plugins: str = "hybridctl"
    audit: Audit | None = None
    load: Loading | None = None
    recipe: Recipe = field(default_factory=Recipe)

    @property
    def name(self) -> str:
        """What is typed after ``hybridctl serve``."""
        return self.folder.name if self.folder.parent == overlays.root() else str(self.folder)

    @property
    def texts(self) -> dict[str, str]:
        """Files of our own, by name."""
        return {
            "config.json": self.patched.after,
            launch_files.CONFIG: launch_files.config_yml(
                *(self.folder, self.source.model, self.flags, None if self.routed else self.load),
                others=self.recipe.others,
            ),
            launch_files.ENVIRONMENT: launch_files.environment(
                self.folder,
                self.plugins,
                injected=self.routed,
                renamed=self.load is not None,
                variables=self.recipe.variables,
            ),
        }

    @property
    def diffs(self) -> list[str]:
        """Unified diffs of every file that is not as in the checkpoint; a new one against nothing."""
        found = [self.patched.diff] + [unified(n, "", text) for n, text in self.texts.items() if n != "config.json"]
        return [each for each in found if each]

    @property
    def to_download(self) -> int:
        return sum(file.size for file in self.source.missing)

    @property
    def commands(self) -> list[str]:
        mounts = [self.folder]
        if self.how == "link" and self.source.folder is not None:
            parent = self.source.folder.parent
            mounts.append(parent.parent if parent.name == "snapshots" else self.source.folder)
        plugin = self.routed or self.load is not None
        return launch_files.commands(self.folder, self.name, plugin, self.versions.vllm, mounts)

    def take_flags(self, flags: Sequence[StoredFlag]) -> None:
        """Take flags into the overlay, and what the family's recipe adds to them."""
        family = family_of(read_config(self.patched.document), plain_architecture(self.patched.document))
        self.recipe = recipe(family, flags, self.versions.vllm)
        self.flags = [*flags, *self.recipe.flags]

    def rename(self, rules: Sequence[NameRule]) -> None:
        """Take rules for names of tensors into the overlay.

        Raises:
            UsageError: as :func:`hybridctl.patchers.loading.write`.
        """
        if rules:
            self.load = loading.write(self.patched, rules, self.source.inventory, self.versions.vllm)
            self.words = words(self)


def default_folder(model: str, option: str | None) -> Path:
    """Where an overlay lies when nobody says: by the model's own name, and that of its routing."""
    name = re.sub(r"[^\w.-]+", "-", Path(model).name).strip(".-") or "model"
    if option not in (None, "none"):
        name += "-" + (re.sub(r"[^\w.-]+", "-", Path(str(option)).stem).strip(".-") or "routed")
    return overlays.root() / name


def make(
    source: Source,
    versions: Versions,
    option: str | None,
    folder: Path,
    how: Materialize,
    force: bool = False,
    tensor_parallel_size: int = 1,
) -> Plan:
    """Work out what is to be written.

    Args:
        option: ``--routing``; ``None``: as config.json has it.
        force: go on where the runtime does not execute the routing yet, or this vLLM lacks the class.

    Raises:
        UsageError: it can't be prepared like this; one line says why.
    """
    patched = patch(source.config, versions)
    config = read_config(patched.document)
    layers = plan_layers(config)
    warnings = [*source.notes, *patched.warnings]
    if config.auto_map:
        warnings.append(
            "config.json names code of its own (auto_map): it is not taken along, and trust_remote_code is not set; read it first"
        )
    _refuse_prepared(patched.document)
    named = "none"
    if option is not None:
        wanted = routing.asked(option)
        named = wanted.name
        _write_block(patched, wanted)
    elif patched.document.get(routing.KEY) is not None:
        named = "config.json"
    routed = patched.document.get(routing.KEY) is not None
    why = _known(patched.document, versions)
    if why and not force:
        raise UsageError(why, "pip install --upgrade vllm, --vllm VERSION for another one, or --force")
    warnings += [why] if why else []
    plan = Plan(source, versions, patched, layers, named, routed, folder, how, warnings=warnings)
    if routed:
        _route(plan, config, force, tensor_parallel_size)
    plan.words = words(plan)
    return plan


def _refuse_prepared(document: Mapping[str, Any]) -> None:
    if plain_architecture(document) != str((document.get("architectures") or [""])[0]):
        raise UsageError(
            f"config.json names {PREFIX}…, which is hybridctl's own: this is what prepare makes, not a checkpoint",
            "name the checkpoint",
        )


def _write_block(patched: Patched, wanted: routing.Routing) -> None:
    present = patched.document.get(routing.KEY)
    if wanted.block is None:
        if routing.KEY in patched.document:
            patched.drop(routing.KEY, Change(routing.KEY, routing.KEY, "taken out: --routing none"))
    elif present != wanted.block:
        change = Change(routing.KEY, routing.KEY, f"--routing {wanted.name}")
        patched.put((routing.KEY,), dict(wanted.block), change)


def _route(plan: Plan, config: ModelConfig, force: bool, tp: int) -> None:
    block = plan.patched.document[routing.KEY]
    made = routing.dispatcher(plan.patched.document, config, plan.layers, block, tp)
    check_version(plan.versions.vllm)
    if lines := not_executed(made):
        if not force:
            raise UsageError("; ".join(lines), "--routing none, another FILE, or --force to write it all the same")
        plan.warnings += [f"serve refuses it with this hybridctl: {line}" for line in lines]
    plan.warnings += routing.meaning(made, plan.source.inventory)
    name = routed_architecture(plan.patched.document)
    reason = "a name that only hybridctl's plugin brings, so that no vLLM serves it without the dispatcher"
    plan.patched.put(("architectures", 0), name, Change("architectures", "architectures.0", reason))
    size = routing.weights(plan.source.inventory)[2]
    if size is not None and block.get("linear_feature_size") is None:
        told = "the size of the states, read from the projections in the checkpoint"
        path = (routing.KEY, "linear_feature_size")
        plan.patched.put(path, size, Change("linear_feature_size", ".".join(path), told))


def _known(document: Mapping[str, Any], versions: Versions) -> str:
    """Why this vLLM can't serve the class; empty where it can, or where that is not known."""
    vllm = parse_version(versions.vllm)
    name = plain_architecture(document)
    row = registered(name)
    if vllm is None or not name:
        return ""
    if row is not None and row.holds(vllm) is not False:
        return ""
    transformers = parse_version(versions.transformers) if versions.transformers else None
    if backend_takes(name, vllm, transformers) is not False:
        return ""
    if row is None:
        return f"no vLLM that was looked at has the class {name}"
    before, after = row.releases_around(vllm)
    when = f"it came with {after}" if after else f"{before} was the last with it"
    return f"vLLM {versions.vllm} has no class {name}; {when}"


def words(plan: Plan) -> str:
    """What the model is, who serves it, what was patched, whether the dispatcher is in: the sentences of every run."""
    title = plan.source.model.rpartition("/")[2] or plan.source.model
    counted = Counter(layer.kind for layer in plan.layers.layers)
    kinds = [f"{n} {routing.NAMES.get(kind, kind).removesuffix(' attention')}" for kind, n in counted.items()]
    if len(kinds) > 1:
        first = f"{title} already mixes {', '.join(kinds[:-1])} and {kinds[-1]} layers"
    else:
        first = f"{title} has {kinds[0]} attention layers" if kinds else f"{title}: its layers are not known"
    row = registered(plain_architecture(plan.patched.document))
    since = next((w.first for w in row.windows if w.first), None) if row else None
    served = f"vLLM ≥ {since.removesuffix('.0')} serves it" if since else "vLLM serves it" if row else ""
    changed = list(dict.fromkeys(change.field for change in plan.patched.changes))
    if plan.load is not None:
        count = sum(n for _, n, _, _ in loading.shown(plan.load.names, plan.source.inventory))
        changed.append(f"names of {count} tensors ({', '.join(rule.shown for rule in plan.load.names)})")
    lines = [first + (f"; {served}." if served else "."), f"Patched: {', '.join(changed) or 'nothing'}."]
    if plan.routed:
        lines.append(f"Dispatcher: injected by hybridctl serve (routing {plan.routing}).")
    else:
        projections, _, _ = routing.weights(plan.source.inventory)
        odd = routing.unwrappable(read_config(plan.patched.document), plan.layers)
        why = [] if projections else ["no routing weights"]
        why += ["layers can't be wrapped"] if odd else []
        why = why or ["--routing was not asked for"]
        lines.append(f"Dispatcher: not injected ({'; '.join(why)}). To see it work: hybridctl serve --demo.")
    return " ".join(lines)


def flags_of(lines: Sequence[tuple[str, str]]) -> list[StoredFlag]:
    """Stored flags from ``("--tensor-parallel-size 4", reason)``."""
    import shlex

    found = []
    for line, reason in lines:
        name, *values = shlex.split(line)
        found.append(StoredFlag(name=name, values=values, reason=reason))
    return found
