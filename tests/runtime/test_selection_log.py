"""The log lines of the article, each at most once in a while, with a count."""

from __future__ import annotations

from routing_cases import ROUTINGS, dispatcher

from hybridctl.runtime.selection_log import SelectionLog


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_starts_and_crossings_give_a_line() -> None:
    lines: list[str] = []
    made, clock = dispatcher(ROUTINGS["no band"]), Clock()
    log = SelectionLog(lines.append, made.routes, 5.0, clock)
    log.step(made.plan_step([0, 20], [20]))
    log.step(made.plan_step([0, 20], [40]))
    assert lines == ["[HYBRID] Selected kernel: flash"]
    log.step(made.plan_step([0, 40], [80]))
    assert lines[1:] == ["[HYBRID] Selected kernel: linear"]
    log.step(made.plan_step([0, 1, 2], [81, 300]))
    assert len(lines) == 2


def test_many_at_once_are_counted() -> None:
    lines: list[str] = []
    made, clock = dispatcher(ROUTINGS["no band"]), Clock()
    log = SelectionLog(lines.append, made.routes, 5.0, clock)
    for _ in range(10):
        log.step(made.plan_step([0, 5, 10], [5, 5]))
    assert lines == ["[HYBRID] Selected kernel: flash (×2)"]
    clock.now = 5.0
    log.step(made.plan_step([0, 1], [9]))
    assert lines[1:] == ["[HYBRID] Selected kernel: flash (×18)"]
    log.step(made.plan_step([0, 5], [5]))
    log.flush()
    log.flush()
    assert lines[2:] == ["[HYBRID] Selected kernel: flash"]


def test_band_lines() -> None:
    lines: list[str] = []
    log = SelectionLog(lines.append, dispatcher(ROUTINGS["band"]).routes, 5.0, Clock())
    log.band(flash=1, linear=0)
    log.band(flash=0, linear=3)
    assert lines == [
        "[HYBRID] Selected kernel: flash (entropy fallback)",
        "[HYBRID] Selected kernel: linear (low entropy) (×3)",
    ]


def test_groups_that_stay_flash_do_not_speak() -> None:
    lines: list[str] = []
    made = dispatcher(ROUTINGS["band"])
    log = SelectionLog(lines.append, made.routes, 5.0, Clock())
    log.step(made.plan_step([0, 1], [131]))
    assert lines == ["[HYBRID] Selected kernel: linear"]


def test_what_waits_is_told_once_it_is_due() -> None:
    """For steps in which nothing starts or crosses."""
    lines: list[str] = []
    made, clock = dispatcher(ROUTINGS["no band"]), Clock()
    log = SelectionLog(lines.append, made.routes, 5.0, clock)
    assert not log.waiting
    log.step(made.plan_step([0, 5], [5]))
    assert not log.waiting
    log.step(made.plan_step([0, 5, 10], [5, 5]))
    assert log.waiting
    log.give_due()
    assert len(lines) == 1
    clock.now = 5.0
    log.give_due()
    assert lines[1:] == ["[HYBRID] Selected kernel: flash (×2)"]
    assert not log.waiting
