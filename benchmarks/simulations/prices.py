"""The price controller with supply that depends on the price: where it settles, and the gain of withheld work.

`python -m benchmarks.simulations.prices` prints the tables of docs/results/prices.md, the same in every run.

A worker works if a gradient pays at least its cost. A round's time is the work of its replicas, divided among the
workers that work, plus or minus the noise. A coalition alternates: for some rounds a part of it stays away, then all of
it works.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from gradmarket.market.rules.pricing import Past, PricedWork, controller
from gradmarket.market.rules.pricing.controller import Settings
from gradmarket.market.terms import Amount

WORK: Final = PricedWork(1, Amount(1))
TARGET_MS: Final = 10_000
PLACES: Final = 120
STEP_MS: Final = 2_000
NOISE: Final = 0.05
COSTS: Final = tuple(range(1000, 5000, 100))
"""Forty workers, each asking a hundred more; the cheapest 24 meet the target, the dearest of these asks 3300."""
ROUNDS: Final = 600
SETTLED: Final = 300
"""Rounds at the end that are measured."""
STARTS: Final = (400, 1000, 3300, 10_000, 26_000)
SHARES: Final = (0.1, 0.2, 0.3, 0.4)
PARTS: Final = (0.25, 0.5, 1.0)
TURNS: Final = ((1, 0), (1, 1), (1, 3), (3, 3), (6, 6), (12, 12), (6, 24))
"""Rounds away, and rounds at work."""
CLOSE: Final = 1.25

Away = Callable[[int], frozenset[int]]
"""Round -> the costs of the workers that stay away."""


@dataclass(frozen=True, slots=True)
class Played:
    """One round: its price, its time, and the costs of the workers that worked."""

    price: Amount
    milliseconds: int
    worked: tuple[int, ...]


def settings(start: int) -> Settings:
    return Settings(floor=Amount(100), ceiling=Amount(30_000), start=Amount(start), target_ms=TARGET_MS)


def nobody(_round: int) -> frozenset[int]:
    return frozenset()


def play(start: int, away: Away = nobody, costs: Sequence[int] = COSTS, rounds: int = ROUNDS) -> Iterator[Played]:
    """Yields the rounds from the price `start` on; the workers of `away` stay away."""
    chance, past, rule = Random(1), None, settings(start)
    for number in range(rounds):
        price = controller.price(rule, WORK, past)
        absent = away(number)
        worked = tuple(cost for cost in costs if cost <= price and cost not in absent)
        even = STEP_MS * PLACES / len(worked) if worked else 2.0 * TARGET_MS
        milliseconds = round(even * chance.uniform(1 - NOISE, 1 + NOISE))
        yield Played(price, milliseconds, worked)
        past = Past(price, milliseconds)


def rounds_to(played: Sequence[Played], price: float) -> int:
    """Returns the number of rounds until the price stays within a quarter of `price`."""
    far = [number for number, one in enumerate(played) if not price / CLOSE <= one.price <= price * CLOSE]
    return far[-1] + 1 if far else 0


def coalition(share: float) -> tuple[int, ...]:
    """Returns the costs of that share of every ten workers."""
    return tuple(cost for number, cost in enumerate(COSTS) if number % 10 < 10 * share)


def taking_turns(members: Sequence[int], part: float, away: int, at_work: int) -> Away:
    """Returns an `Away`: the dearest `part` of the members stays away for `away` rounds, then works for `at_work`."""
    absent = frozenset(members[-max(1, round(part * len(members))) :])
    return lambda number: absent if number % (away + at_work) < away else frozenset()


def hourly(played: Sequence[Played], members: Sequence[int]) -> float:
    """Returns the members' hourly earnings beyond cost; each worker has an equal part of a round's replicas."""
    gained = sum(
        (one.price - cost) * PLACES / len(one.worked) for one in played for cost in one.worked if cost in members
    )
    return gained * 3_600_000 / sum(one.milliseconds for one in played)


def mean_price(played: Sequence[Played]) -> float:
    return sum(one.price for one in played) / len(played)


def _settling() -> Iterator[str]:
    level = mean_price(list(play(COSTS[-1]))[-SETTLED:])
    yield "| first price | rounds until it stays within a quarter | mean time, s | lowest and highest price then |"
    yield "|---|---|---|---|"
    for start in STARTS:
        played = list(play(start))
        end = played[-SETTLED:]
        seconds = sum(one.milliseconds for one in end) / len(end) / 1000
        prices = [one.price for one in end]
        yield f"| {start} | {rounds_to(played, level)} | {seconds:.1f} | {min(prices)} to {max(prices)} |"


def _withholding() -> Iterator[str]:
    honest = list(play(3300))[-SETTLED:]
    yield "| coalition | best play: part away, rounds away and at work | mean price | what it gains | price bound |"
    yield "|---|---|---|---|---|"
    for share in SHARES:
        members = coalition(share)
        plays = {
            (part, turn): list(play(3300, taking_turns(members, part, *turn)))[-SETTLED:]
            for part in PARTS
            for turn in TURNS
        }
        (part, turn), best = max(plays.items(), key=lambda item: hourly(item[1], members))
        gain = hourly(best, members) / hourly(honest, members) - 1
        bound = price_bound(3300, [cost for cost in COSTS if cost not in members])
        spelt = f"{part:.0%}, {turn[0]} and {turn[1]}"
        yield f"| {share:.0%} | {spelt} | {mean_price(best):.0f} | {gain:+.0%} an hour | {bound} |"


def price_bound(start: int, others: Sequence[int]) -> int:
    """Returns an upper limit of the price under any withholding, if `others` always work when it pays.

    At the price at which the others alone meet the target, noise included, the price stops rising; below it, one step
    is an eighth, or one unit.
    """
    needed = STEP_MS * PLACES * (1 + NOISE) / TARGET_MS
    enough = [price for number, price in enumerate(sorted(others), 1) if number >= needed]
    most = settings(start).ceiling
    return min(most, max(start, enough[0] * 9 // 8 + 1)) if enough else most


def tables() -> str:
    return "\n".join([*_settling(), "", *_withholding()])


if __name__ == "__main__":
    print(tables())
