"""When a worker takes tasks: by the time of day, what else the machine does, and its cards' watts and heat.

What is in hand is finished all the same. Watts, heat and use of cards are NVIDIA's management library's.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from gradmarket.market.errors import Refused
from graphdoc.runner.driver import CardLoad, Management

DAY_MINUTES: Final = 24 * 60
COOLED: Final = 5
"""Degrees below the cap at which a card that was too warm takes tasks again."""
BUSY_PROCESSOR: Final = 0.25
BUSY_CARD: Final = 0.1
"""Share of the processor's or a card's time beyond which others use it."""
LOOK_S: Final = 60.0
"""Seconds between two looks at what others use."""
MEASURED_S: Final = 1.0
"""Seconds for which it is measured: no step is computed meanwhile."""
STATISTICS: Final = Path("/proc/stat")
_SPAN: Final = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))? *- *([0-9]{1,2})(?::([0-9]{2}))?")
_FORM: Final = "write them like 22-6, or 22:30-6,12-13"

Span = tuple[int, int]
"""Minutes of the day: the first, and the one after the last; over midnight where that is less."""


def parse_hours(text: str) -> tuple[Span, ...]:
    """Returns the spans of `22-6` or `22:30-6,12-13`, in the machine's own time. Raises ValueError."""
    parts = [part.strip() for part in text.split(",")]
    if parts == [""]:
        return ()
    if "" in parts:
        raise ValueError(f"{text[:80]!r} has no hours beside a comma: {_FORM}")
    return tuple(map(_parse_span, parts))


def _parse_span(text: str) -> Span:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} are no hours: {_FORM}")
    hours = [int(found[1]), int(found[3])]
    minutes = [60 * hour + int(minute or 0) for hour, minute in zip(hours, (found[2], found[4]), strict=True)]
    if max(minutes) > DAY_MINUTES or any(int(found[at] or 0) > 59 for at in (2, 4)):
        raise ValueError(f"{text!r} has no such time of day")
    if minutes[0] % DAY_MINUTES == minutes[1] % DAY_MINUTES and minutes != [0, DAY_MINUTES]:
        raise ValueError(f"{text!r} begins where it ends: write 0-24 for the whole day")
    return minutes[0] % DAY_MINUTES, minutes[1]


def is_within(spans: Sequence[Span], minute: int) -> bool:
    """Returns whether a minute of the day is in one of the spans."""
    return any((start <= minute) + (minute < end) + (end < start) == 2 for start, end in spans)


def read_processor_times(path: Path = STATISTICS) -> tuple[int, int]:
    """Returns what all processors of the machine were busy for, and the whole time, in ticks; zeros if unknown."""
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
    """Tells why no task is taken now. `cards`: the uuids of those that compute."""

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
        """Raises Refused for a rule that nothing here can follow."""
        capped = {"--max-watts": self.rules.max_watts, "--max-celsius": self.rules.max_celsius}
        for name, cap in capped.items():
            if cap is None:
                continue
            if not self.cards:
                raise Refused(f"{name} is for cards, and the processor computes", "leave it out, or name a --device")
            known = [load.watts if name == "--max-watts" else load.celsius for load in self._list_loads()]
            if None in known or len(known) < len(self.cards):
                raise Refused(
                    f"{name}: no management library (libnvidia-ml.so.1) tells it of each card",
                    "install NVIDIA's driver whole; in a container add NVIDIA_DRIVER_CAPABILITIES=compute,utility",
                )

    def find_pause(self, works: bool, pause: Callable[[float], object]) -> str:
        """Returns why no task is taken now, empty where one may be. `works`: a step is computed meanwhile.

        Whether others use the machine is measured once in LOOK_S seconds, between two steps, while `pause` waits.
        """
        rules = self.rules
        if rules.hours:
            now = self.now()
            if not is_within(rules.hours, 60 * now.hour + now.minute):
                return "outside its hours (--hours)"
        if rules.max_watts is not None or rules.max_celsius is not None:
            for uuid, load in zip(self.cards, self._list_loads(), strict=False):
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
        after, loads = self.read_times(), list(self._list_loads())
        self._looked_at, self._used = self.clock(), ""
        share = (after[0] - before[0]) / max(1, after[1] - before[1])
        if self.cards:
            used = [load.name for load in loads if (load.percent or 0) > 100 * BUSY_CARD]
            self._used = f"others use {used[0]} (--idle)" if used else ""
        elif share > BUSY_PROCESSOR:
            self._used = "others use the processor (--idle)"
        return self._used

    def _list_loads(self) -> Sequence[CardLoad]:
        if self.management is None or not self.cards:
            return []
        return [load for uuid in self.cards if (load := self.management.read_load(uuid)) is not None]
