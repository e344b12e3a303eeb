"""Begin to ask the NVIDIA driver: a module of its own, so that the question is out before anything larger is loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from hybridctl.doctor.facts.child import Child, ChildError

SECONDS = 1.2
"""With the rest of a run, two seconds are not exceeded when the driver hangs."""
Answers: TypeAlias = "tuple[list[Any], str]"
"""The documents of ``_nvml_child.py``, and why there are no more."""


def ask_driver() -> Callable[[], Answers]:
    """Start the child; what is returned waits for what it says within the time."""
    # Isolated and without site: neither the user's variables nor what is installed can put anything in place of the library.
    program = str(Path(__file__).with_name("_nvml_child.py"))
    try:
        child = Child([sys.executable, "-I", "-S", program], os.sep)
    except ChildError as error:
        problem = str(error)
        return lambda: ([], problem)
    return lambda: child.documents(SECONDS)
