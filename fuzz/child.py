"""A child that plays cases: `python -m fuzz.child <progress descriptor> <package of kinds>`.

Each line of its input asks for cases of one kind, each line of its output is their outcome. The progress file has the
present case's number, so that a crash names its case.
"""

import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from fuzz.canary import Canary
from fuzz.case import Case, Kind, chance_of, kind_of, kinds, seed_of

SECONDS: Final = 1.0
"""Processor time that one case of up to a mebibyte may take; a larger one in proportion."""
ENDED_AFTER: Final = 10
"""Seconds of processor time after which a case is taken to be endless, and the child ends."""
GROWTH_KIB: Final = 256 * 1024
"""Memory that one case may add to the most that there ever was, where its kind states no less."""
ADDRESS_SPACE: Final = 3 * 2**30
WARMING: Final = 60
"""Cases before the watch begins: imports and opened files of a first use are not a case's doing."""
KEPT: Final = 1_000
"""Accepted cases whose numbers are returned, at most."""


@dataclass
class Outcome:
    """The outcome of cases. `failures` are pairs of a seed and its fault, `kept` numbers of accepted cases."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    slowest_ms: float = 0.0
    seconds: float = 0.0
    slowest: str = ""
    failures: list[tuple[str, str]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)


class Player:
    """Plays cases of any kind, each under watch."""

    def __init__(self, package: str) -> None:
        warnings.simplefilter("ignore")
        self._kinds = {name: kind_of(name, package) for name in kinds(package)}
        for name, kind in self._kinds.items():
            for number in range(WARMING):
                _attempt(kind, kind.case(chance_of(seed_of(f"warm {name}", number))))
        self._canary = Canary()

    def play(self, name: str, numbers: range, progress: int) -> Outcome:
        """Every case of these numbers."""
        outcome = Outcome()
        before = time.process_time()
        descriptors = len(os.listdir("/proc/self/fd"))
        for number in numbers:
            os.pwrite(progress, number.to_bytes(8, "little"), 0)
            self._one(outcome, self._kinds[name], name, number)
        if len(os.listdir("/proc/self/fd")) > descriptors:
            outcome.failures.append((seed_of(name, numbers[0]), "a descriptor stayed open here or a little later"))
        outcome.seconds = time.process_time() - before
        return outcome

    def _one(self, outcome: Outcome, kind: Kind, name: str, number: int) -> None:
        seed = seed_of(name, number)
        case = kind.case(chance_of(seed))
        peak = _peak_kib()
        signal.setitimer(signal.ITIMER_PROF, ENDED_AFTER)
        start = time.process_time()
        self._canary.watching = True
        ended = _attempt(kind, case)
        self._canary.watching = False
        seconds = time.process_time() - start
        signal.setitimer(signal.ITIMER_PROF, 0)
        grown = _peak_kib() - peak
        verdict = ended if isinstance(ended, str) else "".join(traceback.format_exception(ended, limit=-6))
        faults = [] if verdict in ("accepted", "refused") else [verdict]
        faults += [f"it took {seconds:.1f} s"] if seconds > SECONDS * max(1, len(case.data) / 2**20) else []
        faults += [f"it took {grown // 1024} MiB"] if grown > getattr(kind, "GROWTH_KIB", GROWTH_KIB) else []
        faults += [f"it did {event}" for event in self._canary.drain_events()]
        _count(outcome, number, verdict, seconds, seed)
        outcome.failures += [(seed, fault) for fault in faults]


def _peak_kib() -> int:
    """Returns the most memory that this process ever had; getrusage counts its parent's, too."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def _attempt(kind: Kind, case: Case) -> str | BaseException:
    """Returns `accepted`, `refused`, or another error."""
    try:
        kind.read(case)
    except kind.REFUSED:
        return "refused"
    except BaseException as error:  # noqa: BLE001  # any other error is a finding
        return error
    return "accepted"


def _count(outcome: Outcome, number: int, verdict: str, seconds: float, seed: str) -> None:
    outcome.cases += 1
    outcome.accepted += verdict == "accepted"
    outcome.refused += verdict == "refused"
    if verdict == "accepted" and len(outcome.kept) < KEPT:
        outcome.kept.append(number)
    if seconds * 1000 > outcome.slowest_ms:
        outcome.slowest_ms, outcome.slowest = seconds * 1000, seed


def main() -> None:
    """Answers lines until there are no more."""
    progress, package = int(sys.argv[1]), sys.argv[2]
    for which, limit in ((resource.RLIMIT_AS, ADDRESS_SPACE), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(which, (limit, limit))
    player = Player(package)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        outcome = player.play(asked["kind"], range(asked["start"], asked["start"] + asked["count"]), progress)
        print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
