"""When a worker takes tasks: the hours against the clock's own arithmetic, caps and use by given loads."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gradmarket.market.errors import Refused
from graphdoc.runner.driver import CardLoad, Management
from tests.kit.stand_in_card import UUIDS, install_driver
from tests.patience import wait_until
from tests.worker.fake_market import FakeMarket
from worker.features.work_schedule import LOOK_S, WorkRules, WorkSchedule, is_within, read_processor_times
from worker.markets.loop import Loop
from worker.markets.worker_context import WorkerContext
from worker.options import settings_of
from worker.protocol.in_flight import InFlightFolder
from worker.settings import parse_hours

MIDNIGHT = datetime(2026, 5, 4)
NIGHT = WorkRules(hours=parse_hours("22-6"))


def wait_for_nothing(_seconds: float) -> None:
    """A pause that takes no time."""


@dataclass
class Loads:
    """Stands in for the management library: each look takes the next of the loads, the last one again and again."""

    told: list[CardLoad] = field(default_factory=list)

    def read_load(self, _uuid: str) -> CardLoad | None:
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]


def with_loads(rules: WorkRules, *loads: CardLoad) -> WorkSchedule:
    return WorkSchedule(rules, ("GPU-1",), Loads(list(loads)))  # type: ignore[arg-type]


@given(some.integers(0, 23), some.integers(0, 59), some.integers(1, 1439), some.integers(0, 1439))
def test_a_span_covers_the_minutes_from_its_start_to_its_end(hour: int, minute: int, length: int, after: int) -> None:
    start = MIDNIGHT + timedelta(hours=hour, minutes=minute)
    end, now = start + timedelta(minutes=length), start + timedelta(minutes=after)
    spans = parse_hours(f"{start.hour}:{start.minute:02}-{end.hour}:{end.minute:02}")
    assert is_within(spans, 60 * now.hour + now.minute) == (after < length)


@pytest.mark.parametrize(
    ("at", "works"), [(21, False), (22, True), (0, True), (5, True), (6, False), (12, True), (13, False)]
)
def test_spans_add_up_and_go_over_midnight(at: int, works: bool) -> None:
    assert is_within(parse_hours("22-6, 12-13"), 60 * at) is works
    assert is_within(parse_hours("22 - 6 , 12 -13"), 60 * at) is works
    assert is_within(parse_hours("20-24"), 60 * at) is (20 <= at < 24)
    assert is_within(parse_hours("24-6"), 60 * at) is (at < 6)
    assert is_within(parse_hours("0-24"), 60 * at + 59)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((form, "are no hours: write them like 22-6") for form in ("night", "22", "22-6-7", "-6", "٢٢-٦", "2 2-6")),
        *((time, "has no such time of day") for time in ("25-6", "22:60-6", "22-24:01")),
        *((none, "begins where it ends: write 0-24 for the whole day") for none in ("8-8", "0-0", "24-0", "24-24")),
        *((comma, "no hours beside a comma: write them like 22-6") for comma in ("22-6,", ",", "22-6,,12-13")),
    ],
)
def test_malformed_hours_are_refused_with_the_form(text: str, why: str) -> None:
    with pytest.raises(Refused, match=f"--hours: '{text}' .*{why}"):
        settings_of(hours=text)


@pytest.mark.parametrize("watts", [float("inf"), float("nan"), 0, -1])
def test_a_cap_on_watts_is_a_number_above_none(watts: float) -> None:
    with pytest.raises(Refused, match="--max-watts"):
        settings_of(max_watts=watts)


def test_outside_its_hours_no_task_is_taken() -> None:
    evening = WorkSchedule(NIGHT, now=lambda: MIDNIGHT + timedelta(hours=21, minutes=59))
    night = WorkSchedule(NIGHT, now=lambda: MIDNIGHT + timedelta(hours=22))
    assert evening.find_pause(False, wait_for_nothing) == "outside its hours (--hours)"
    assert night.find_pause(False, wait_for_nothing) == ""
    assert WorkSchedule().find_pause(False, wait_for_nothing) == ""


def test_a_card_that_was_too_warm_cools_five_degrees_before_it_works_again() -> None:
    warm = [CardLoad("card", celsius=degrees) for degrees in (80, 81, 78, 76, 75, 80)]
    schedule = with_loads(WorkRules(max_celsius=80), *warm)
    assert [bool(schedule.find_pause(False, wait_for_nothing)) for _ in warm] == [False, True, True, True, False, False]


def test_a_card_that_reports_nothing_for_a_while_has_not_another_ones_heat() -> None:
    """The second card is warm at both looks, and the first one silent at the second: it is not the warm one then."""
    told = {"GPU-0": iter([60, None, 78]), "GPU-1": iter([85, 85, 60])}

    class Each:
        def read_load(self, uuid: str) -> CardLoad | None:
            degrees = next(told[uuid])
            return None if degrees is None else CardLoad(uuid, celsius=degrees)

    schedule = WorkSchedule(WorkRules(max_celsius=80), ("GPU-0", "GPU-1"), Each())  # type: ignore[arg-type]
    found = [schedule.find_pause(False, wait_for_nothing).partition(" ")[0] for _ in range(3)]
    assert found == ["GPU-1", "GPU-1", ""]


def test_a_card_that_draws_too_much_takes_no_task_until_it_draws_less() -> None:
    schedule = with_loads(WorkRules(max_watts=300), CardLoad("card", watts=300.5), CardLoad("card", watts=300))
    assert schedule.find_pause(True, wait_for_nothing) == "card draws more than 300 W (--max-watts)"
    assert schedule.find_pause(True, wait_for_nothing) == ""


def test_others_use_is_measured_between_two_steps_once_a_minute() -> None:
    clock, waited = count(0, LOOK_S / 2), list[float]()
    schedule = with_loads(WorkRules(idle=True), CardLoad("card", percent=80), CardLoad("card", percent=10))
    schedule.clock = lambda: float(next(clock))
    assert "step in hand" in schedule.find_pause(True, waited.append)
    assert not waited
    assert schedule.find_pause(False, waited.append) == "others use card (--idle)"
    assert schedule.find_pause(False, waited.append) == "others use card (--idle)"
    assert waited == [1.0]
    assert schedule.find_pause(False, waited.append) == ""


@pytest.mark.parametrize(("busy", "idle"), [(30, False), (20, True)])
def test_a_processor_that_others_use_takes_no_task(busy: int, idle: bool) -> None:
    times: Iterator[tuple[int, int]] = iter([(1000, 5000), (1000 + busy, 5100)])
    schedule = WorkSchedule(WorkRules(idle=True), read_times=lambda: next(times))
    assert (schedule.find_pause(False, wait_for_nothing) == "") is idle


def test_the_kernels_statistics_are_read_as_proc_5_has_them(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  10 1 20 300 40 2 3 4 0 0\ncpu0 1 2 3\n")
    assert read_processor_times(tmp_path / "stat") == (40, 380)
    assert read_processor_times(tmp_path / "none") == (0, 0)
    assert read_processor_times()[1] > 0


@pytest.mark.parametrize("rules", [WorkRules(max_watts=300), WorkRules(max_celsius=80)])
def test_a_cap_that_nothing_can_follow_is_refused_at_the_start(rules: WorkRules, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="this worker computes on the CPU"):
        WorkSchedule(rules).check_rules()
    missing = Management(str(tmp_path / "no library"))
    with pytest.raises(Refused, match="libnvidia-ml"):
        WorkSchedule(rules, UUIDS, missing).check_rules()


def test_the_librarys_figures_are_those_of_the_workers_own_cards(tmp_path: Path) -> None:
    install_driver(tmp_path, tmp_path)
    library = Management(str(tmp_path / "libnvidia-ml.so.1"))
    hot = WorkSchedule(WorkRules(max_watts=600, max_celsius=90), UUIDS[:1], library)
    hot.check_rules()
    assert hot.find_pause(False, wait_for_nothing) == "NVIDIA H100 80GB HBM3 draws more than 600 W (--max-watts)"
    with pytest.raises(Refused, match="--max-watts"):
        WorkSchedule(WorkRules(max_watts=600), UUIDS, library).check_rules()


def test_a_paused_worker_asks_for_no_task_logs_it_once_and_goes_on(
    fake_market: FakeMarket, make_context: Callable[..., WorkerContext]
) -> None:
    context, hour = make_context(fake_market), [21]
    context.find_pause = WorkSchedule(NIGHT, now=lambda: MIDNIGHT + timedelta(hours=hour[0])).find_pause
    loop = Loop(context, InFlightFolder(context.settings.data / "held"))
    for _ in range(3):
        loop.turn()
    assert [said.capacity for said in fake_market.asked] == [0, 0, 0]
    hour[0] = 22
    wait_until(lambda: len(fake_market.rows) == 3, meanwhile=loop.turn)
    told = (context.settings.data / "journal").read_text()
    assert told.count("Takes no task now: outside its hours (--hours).") == 1
    assert told.count("Takes tasks again.") == 1
