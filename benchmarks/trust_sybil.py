"""Gain of free identities under the proposed rules of identities, and under a plain majority vote (`trust.sybil.*`).

Played in simulation (gradmarket.trust.free_identities): wrong gradients at the end, pay, unpaid honest seats and
computations, in jobs of 200 rounds. Intervals are of 95 %, by Student's t over the seeds.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from statistics import mean
from typing import Final

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.market.rules.replication import proven
from gradmarket.trust.free_identities import (
    ADVERSARIES,
    LYING,
    RingMarket,
    RingOutcome,
    Rules,
    play,
    play_majority,
)
from gradmarket.trust.played_rings import Interval

PREFIX: Final = "trust.sybil."
ROUNDS: Final = sized(200, 4)
MARKETS: Final = sized(
    tuple(RingMarket(workers, tasks, ROUNDS) for tasks in (8, 40) for workers in (12, 60, 300)),
    (RingMarket(12, 8, ROUNDS),),
)
MIDDLE: Final = sized(RingMarket(60, 8, ROUNDS), RingMarket(12, 8, ROUNDS))
"""The market in which every adversary has a line."""
SEEDS: Final = sized(30, 2)
SHARES: Final = (0.1, 0.2, 0.3, 0.5)
INSTANT: Final = ("instant_always", "instant_unanimous")
AT_ONCE: Final = 2
"""Plays beside each other."""
VOTE: Final = "plain vote"


@dataclass(frozen=True)
class Cell:
    """One adversary in one market, with this share of its identities; `voted`: under a plain majority vote."""

    market: RingMarket
    share: float
    adversary: str
    voted: bool = False


SHORT: Final = sized((10, 20, 30), (4,))
"""Rounds of short jobs, which audit more (proven.compute_audit_rate)."""
PLAYED: Final = ("unanimous", "unanimous_half", "once_and_leave", "patient", "late", "flood")

Results = dict[Cell, list[RingOutcome]]


def measure() -> Iterator[Figure]:
    found = _play_all()
    for market in MARKETS:
        yield from _measure_market(found, market)
    yield from _measure_adversaries(found)
    yield from _measure_sharing(found)
    yield from _measure_short_jobs()


def _play_all() -> Results:
    cells = [Cell(market, share, name) for market in MARKETS for share in (0.3, 0.5) for name in ADVERSARIES]
    cells += [Cell(MIDDLE, 0.3, name, voted=True) for name in ADVERSARIES]
    cells += [Cell(MIDDLE, share, "honest") for share in SHARES]
    cells = list(dict.fromkeys(cells))
    with ProcessPoolExecutor(AT_ONCE) as pool:
        return dict(zip(cells, pool.map(_play_cell, cells, chunksize=4), strict=True))


def _play_cell(cell: Cell) -> list[RingOutcome]:
    adversary = ADVERSARIES[cell.adversary]
    if cell.voted:
        return [play_majority(cell.market, cell.share, adversary, seed) for seed in range(SEEDS)]
    return [play(cell.market, cell.share, adversary, Rules(), seed) for seed in range(SEEDS)]


def _wrong(outcomes: Sequence[RingOutcome]) -> Interval:
    return Interval.of([100 * each.wrong_share for each in outcomes])


def _pay(outcomes: Sequence[RingOutcome]) -> Interval:
    return Interval.of([each.pay for each in outcomes])


def _measure_market(found: Results, market: RingMarket) -> Iterator[Figure]:
    """Each figure is of the adversary that does worst, which its note names."""
    name = f"{PREFIX}{market.workers}x{market.tasks}"
    lies = {lie: found[Cell(market, 0.3, lie)] for lie in LYING}
    for share, target in ((0.3, 1.0), (0.5, 2.5)):
        wrong = {lie: _wrong(found[Cell(market, share, lie)]) for lie in LYING}
        worst = max(wrong, key=lambda lie: wrong[lie].mean)
        part = f"{name}.wrong.f{share * 100:.0f}"
        yield Figure(part, wrong[worst].mean, "%", target=f"<= {target}", note=worst)
        yield Figure(f"{part}.most", wrong[worst].most, "%", note="upper end of the interval of 95 %")
    honest = found[Cell(market, 0.3, "honest")]
    fair, pays = _pay(honest), {lie: _pay(outcomes) for lie, outcomes in lies.items()}
    best = max(pays, key=lambda lie: pays[lie].mean)
    ratio = pays[best].mean / fair.mean
    note = f"{best}: {pays[best].mean:.2f}±{pays[best].half:.2f} of {fair.mean:.2f}±{fair.half:.2f} a gradient"
    yield Figure(f"{name}.lying_pay", ratio, "of sharing honestly", target="<= 1.05", note=note)
    seats = {lie: mean(each.seat_pay for each in outcomes) for lie, outcomes in lies.items()}
    best = max(seats, key=lambda lie: seats[lie])
    yield Figure(f"{name}.lying_pay_per_seat", seats[best], "prices", target="<= 1", note=best)
    unpaid = {lie: 100 * mean(each.unpaid_share for each in outcomes) for lie, outcomes in lies.items()}
    worst = max(unpaid, key=lambda lie: unpaid[lie])
    yield Figure(f"{name}.honest_unpaid", unpaid[worst], "% of honest seats", target="<= 0.5", note=worst)
    ring = round(0.3 * market.workers) / market.workers
    taken = {lie: mean(each.seat_share for each in lies[lie]) / ring for lie in INSTANT}
    worst = max(taken, key=lambda lie: taken[lie])
    yield Figure(f"{name}.instant_seats", taken[worst], "of their share", target="<= 1", note=worst)
    cost = mean(each.computations for each in honest)
    yield Figure(f"{name}.computations.honest", cost, "a right task", target="<= 3.25")
    costs = {lie: mean(each.computations for each in outcomes) for lie, outcomes in lies.items()}
    worst = max(costs, key=lambda lie: costs[lie])
    again = 100 * mean(each.rounds_again for each in lies[worst]) / market.rounds
    note = f"{worst}; {again:.1f} % of rounds done again"
    yield Figure(f"{name}.computations.attacked", costs[worst], "a right task", target="<= 3.7", note=note)


def _measure_adversaries(found: Results) -> Iterator[Figure]:
    """Each adversary of 30 % in the middle market, beside the plain vote."""
    for lie in LYING:
        new, old = found[Cell(MIDDLE, 0.3, lie)], found[Cell(MIDDLE, 0.3, lie, voted=True)]
        wrong, voted = _wrong(new), _wrong(old)
        seat = (mean(each.seat_pay for each in outcomes) for outcomes in (new, old))
        note = "±{:.2f}, vote ±{:.2f}; pay a seat {:.2f}, vote {:.2f}".format(wrong.half, voted.half, *seat)
        ratio = wrong.mean / voted.mean if voted.mean else None
        yield Figure(f"{PREFIX}ring.{lie}", wrong.mean, "% wrong", peer=VOTE, ratio=ratio, note=note)
        yield Figure(f"{PREFIX}ring.{lie}.half", wrong.half, "% wrong", note="half of the interval of 95 %")
        yield Figure(f"{PREFIX}vote.{lie}", voted.mean, "% wrong", note=f"±{voted.half:.2f}")
    unpaid = 100 * mean(each.unpaid_share for each in found[Cell(MIDDLE, 0.3, "quorum", voted=True)])
    yield Figure(f"{PREFIX}vote.quorum.honest_unpaid", unpaid, "% of honest seats")


def _measure_sharing(found: Results) -> Iterator[Figure]:
    """The attack that no vote sees: one computation for all seats of a task."""
    for share in SHARES:
        pay = _pay(found[Cell(MIDDLE, share, "honest")])
        note = f"±{pay.half:.2f}; 3f / (1 - (1 - f)^3) = {3 * share / (1 - (1 - share) ** 3):.2f}"
        yield Figure(f"{PREFIX}sharing.f{share * 100:.0f}", pay.mean, "prices a gradient", note=note)


def _measure_short_jobs() -> Iterator[Figure]:
    """Jobs of few rounds beside a ring of 30 %: each figure is of the worst adversary, which its note names."""
    for rounds in SHORT:
        rules, market = Rules(rate=proven.compute_audit_rate(3, rounds)), replace(MIDDLE, rounds=rounds)
        lies = {
            lie: [play(market, 0.3, ADVERSARIES[lie], rules, seed) for seed in range(SEEDS)]
            for lie in ("honest", *PLAYED)
        }
        costs = {lie: mean(each.computations for each in outcomes) for lie, outcomes in lies.items()}
        wrong = {lie: _wrong(outcomes).mean for lie, outcomes in lies.items()}
        worst, dearest = max(wrong, key=lambda lie: wrong[lie]), max(costs, key=lambda lie: costs[lie])
        name, note = f"{PREFIX}{rounds}_rounds", f"audits of {rules.rate:.0%}"
        yield Figure(f"{name}.wrong.f30", wrong[worst], "%", target="<= 1.0", note=f"{worst}; {note}")
        yield Figure(f"{name}.computations.honest", costs["honest"], "a right task", target="<= 3.25", note=note)
        yield Figure(f"{name}.computations.attacked", costs[dearest], "a right task", target="<= 3.7", note=dearest)
