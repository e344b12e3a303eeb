"""Commands that start servers use the same stand-in as the runtime's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

Scenario = Callable[[Path], None]


@pytest.fixture(scope="module")
def side_by_side(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Scenario], None]]:
    """Runs the module's selected scenarios two at a time: most of a start is one process that imports. Gives each one's outcome.

    A scenario is a function of an empty folder, named by the test's parameter ``scenario``.
    """
    chosen = [
        item.callspec.params["scenario"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec")
    ]
    with ThreadPoolExecutor(2) as pool:
        outcomes = {each: pool.submit(each, tmp_path_factory.mktemp(each.__name__)) for each in chosen}
        yield lambda scenario: outcomes[scenario].result()
        for outcome in outcomes.values():
            outcome.cancel()
