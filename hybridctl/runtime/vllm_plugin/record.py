"""For tests: sees which kernel each token took, so that a reference can replay it. Nothing here can be switched on by users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

# Called with the layer, its Work and, where entropy decided tokens, their mask [B, H_k] (True where linear).
hook: Callable[[Any, Any, Tensor | None], None] | None = None
