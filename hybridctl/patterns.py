"""Regular expressions that are compiled when they are first used.

Compiling is slow, and most starts meet only a few of the texts that the modules which they load could read. A pattern that a start
uses in any case is better compiled at once, with :func:`re.compile`.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Late:
    def __init__(self, text: Any, flags: int) -> None:
        self._made_of = text, flags

    def __getattr__(self, name: str) -> Any:
        """Asked once for each method: what is found stays on the object, so that a loop pays nothing for the delay."""
        found = getattr(re.compile(*self._made_of), name)
        setattr(self, name, found)
        return found


def late(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As :func:`re.compile`, but a fault in the pattern shows when it is used.

    What is returned has a pattern's methods and attributes but is no :class:`re.Pattern`: functions of :mod:`re` do not take it.
    """
    return cast("re.Pattern[AnyStr]", _Late(text, flags))
