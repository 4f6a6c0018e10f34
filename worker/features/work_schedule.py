"""The times at which a worker takes tasks: by the time of day, other use of the machine, and its cards' watts and heat.

Work in hand is always finished. Watts, heat and use of cards come from NVIDIA's management library.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from gradmarket.market.errors import Refused
from graphdoc.runner.driver import CardLoad, Management
from worker.feature import WorkerFeature
from worker.markets.worker_context import FindPause
from worker.settings import Span, WorkerSettings, parse_hours

COOLED: Final = 5
"""Degrees below the cap at which a card that was too warm takes tasks again."""
BUSY_PROCESSOR: Final = 0.25
BUSY_CARD: Final = 0.1
"""Share of the processor's or a card's time beyond which others use it."""
LOOK_S: Final = 60.0
"""Seconds between two measurements of other programs' use."""
MEASURED_S: Final = 1.0
"""Seconds that a measurement takes: no step is computed meanwhile."""
STATISTICS: Final = Path("/proc/stat")


def is_within(spans: Sequence[Span], minute: int) -> bool:
    """Returns whether a minute of the day is in one of the spans."""
    return any((start <= minute) + (minute < end) + (end < start) == 2 for start, end in spans)


def read_processor_times(path: Path = STATISTICS) -> tuple[int, int]:
    """Returns the busy time of all processors of the machine, and the whole time, in ticks; zeros if unknown."""
    try:
        ticks = [int(number) for number in path.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return 0, 0
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)  # the fourth and fifth are idle, alone and waiting for a disk


@dataclass(frozen=True, slots=True)
class WorkRules:
    """The owner's rules; none of them by default. Watts and degrees Celsius are each card's."""

    hours: tuple[Span, ...] = ()
    idle: bool = False
    max_watts: float | None = None
    max_celsius: int | None = None


@dataclass
class WorkSchedule:
    """Finds why no task is taken now. `cards`: the uuids of the computing ones."""

    rules: WorkRules = WorkRules()
    cards: Sequence[str] = ()
    management: Management | None = None
    now: Callable[[], datetime] = datetime.now
    clock: Callable[[], float] = time.monotonic
    read_times: Callable[[], tuple[int, int]] = read_processor_times
    _warm: set[str] = field(default_factory=set)
    _looked_at: float = -LOOK_S
    _used: str = ""

    def check_rules(self) -> None:
        """Raises Refused for a rule that this machine cannot follow."""
        capped = {"--max-watts": self.rules.max_watts, "--max-celsius": self.rules.max_celsius}
        for name, cap in capped.items():
            if cap is None:
                continue
            if not self.cards:
                raise Refused(
                    f"{name} applies to cards, and this worker computes on the CPU", "leave it out, or name a --device"
                )
            known = [load.watts if name == "--max-watts" else load.celsius for load in self._list_loads().values()]
            if None in known or len(known) < len(self.cards):
                raise Refused(
                    f"{name}: no management library (libnvidia-ml.so.1) tells it of each card",
                    "install NVIDIA's driver whole; in a container add NVIDIA_DRIVER_CAPABILITIES=compute,utility",
                )

    def find_pause(self, works: bool, pause: Callable[[float], object]) -> str:
        """Returns why no task is taken now, empty where one may be. `works`: a step is computed meanwhile.

        Other programs' use is measured once in LOOK_S seconds, between two steps, while `pause` waits.
        """
        rules = self.rules
        if rules.hours:
            now = self.now()
            if not is_within(rules.hours, 60 * now.hour + now.minute):
                return "outside its hours (--hours)"
        if rules.max_watts is not None or rules.max_celsius is not None:
            for uuid, load in self._list_loads().items():
                if reason := self._find_cap(uuid, load):
                    return reason
        return self._find_use(works, pause) if rules.idle else ""

    def _find_cap(self, uuid: str, load: CardLoad) -> str:
        watts, warmest = self.rules.max_watts, self.rules.max_celsius
        if watts is not None and load.watts is not None and load.watts > watts:
            return f"{load.name} draws more than {watts:g} W (--max-watts)"
        if warmest is not None and load.celsius is not None:
            too_warm = load.celsius > (warmest - COOLED if uuid in self._warm else warmest)
            (self._warm.add if too_warm else self._warm.discard)(uuid)
            if too_warm:
                return f"{load.name} was warmer than {warmest} °C (--max-celsius)"
        return ""

    def _find_use(self, works: bool, pause: Callable[[float], object]) -> str:
        if self.clock() - self._looked_at < LOOK_S:
            return self._used
        if works:
            return "a look at what others use waits for the step in hand (--idle)"
        before = self.read_times()
        pause(MEASURED_S)
        after, loads = self.read_times(), self._list_loads().values()
        self._looked_at, self._used = self.clock(), ""
        share = (after[0] - before[0]) / max(1, after[1] - before[1])
        if self.cards:
            used = [load.name for load in loads if (load.percent or 0) > 100 * BUSY_CARD]
            self._used = f"others use {used[0]} (--idle)" if used else ""
        elif share > BUSY_PROCESSOR:
            self._used = "others use the processor (--idle)"
        return self._used

    def _list_loads(self) -> dict[str, CardLoad]:
        """Returns the load of each card, by its uuid, but of those that report none now."""
        found = {} if self.management is None else {uuid: self.management.read_load(uuid) for uuid in self.cards}
        return {uuid: load for uuid, load in found.items() if load is not None}


class WorkScheduleFeature(WorkerFeature):
    name = "work_schedule"
    serves = frozenset({"hours", "idle", "max_watts", "max_celsius"})

    def open_pause(self, settings: WorkerSettings, cards: Sequence[str]) -> FindPause:
        rules = WorkRules(parse_hours(settings.hours), settings.idle, settings.max_watts, settings.max_celsius)
        schedule = WorkSchedule(rules, cards, Management() if cards else None)
        schedule.check_rules()
        return schedule.find_pause
