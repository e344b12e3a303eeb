"""``hf env``, ``huggingface-cli env``, ``transformers env`` and ``accelerate env``: bullets of ``- name: value``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hybridctl.doctor.facts import labels
from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.gpu_lines import named
from hybridctl.doctor.facts.statements import Found, is_nothing
from hybridctl.gpus import vendor_of

_BULLET = re.compile(r"\s*[-*]\s+\S")
_TORCH = re.compile(r"(?:pytorch|torch)(?: version)?(?: \((?:gpu|accelerator)\?\))?$")
_SIZE = re.compile(r"(\d{1,9}(?:\.\d+)?) GB$")
# These print settings whether set or not; only a switch that is on tells that somebody set it.
_SWITCHES = ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_XET", "HF_HUB_ENABLE_HF_TRANSFER", "HF_XET_HIGH_PERFORMANCE")


def parse(lines: Sequence[Line]) -> Found:
    """The bullets that :mod:`loose` would not read: the platform, torch with what follows it, GPUs, memory, switches."""
    found = Found()
    for line in lines:
        if not _BULLET.match(line.text):
            continue
        split = labels.split_label(line.text)
        if not split or is_nothing(split[1]):
            continue
        label, value = split
        if label == "platform":
            labels.say_kernel(found, value, line)
        elif label == "python version":
            labels.say_python(found, value, line)
        elif _TORCH.match(label):
            found.package("torch", value, line)
        elif label == "gpu type" and vendor_of(value) and (row := named(value, line)):
            found.gpus.append([row])
        elif label == "system ram" and (size := _SIZE.match(value)):
            found.say("platform.ram_gib", float(size[1]), line)
        elif label.upper() in _SWITCHES and value.lower() in ("true", "1"):
            found.say(f"env.{label.upper()}", value, line)
    return found
