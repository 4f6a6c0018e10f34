"""Bounds a job's risk on newcomers: their money, their number at a time, and the pause after a failure.

Identities are free, and a reservation returns only by its worker's release or when claims have ended. So the money
reserved for workers that never delivered is bounded for any set of polling workers. Where known workers suffice, only a
few newcomers hold a place.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gradmarket.market.rules.assignment import Opening, Party, is_same_party
from gradmarket.market.terms import Units

SHARE: Final = 4
"""A quarter of the deposit; and a quarter of a round's places, where workers that delivered before suffice."""
MANY: Final = 8
"""Owners whose answers diverge before it may be the model's fault."""
ESTABLISHED: Final = 4
"""Gradients earned in a job until a worker's reservation no longer counts on its staying."""
FIRST_REST_S: Final = 30.0
LONGEST_REST_S: Final = 3600.0
WATCHED: Final = 20
"""The number of leases for which an abandoned place counts, and after which a round that stands has money for one."""
PAUSE: Final = 4
"""After a newcomer stalled, the next one is tried after at least four times the duration of a stall, on average."""


def compute_allowance(deposited: Units, round_cost: Units) -> Units:
    """Returns the most that may be reserved for workers that earned nothing in the job.

    That is the cost of a round, or a quarter of the deposit where this is more; at most the deposit.
    """
    return Units(min(deposited, max(round_cost, deposited // SHARE)))


def compute_watched_s(lease_s: float) -> float:
    """Returns for how many seconds a place that was left counts, and a round stands until it has money for one more."""
    return WATCHED * lease_s


def count_reservable(left: int, stood_s: float, lease_s: float) -> int:
    """Returns for how many workers that earned nothing a price may be reserved: the `left` ones, or one where none is.

    `stood_s`: seconds since the newest round was opened and since such a price was last reserved. So those that hold
    the whole allowance and are gone stop no job for good; beyond it they lock one price each WATCHED leases.
    """
    return left if left > 0 else int(stood_s >= compute_watched_s(lease_s))


def choose_topped_up(
    earned: Mapping[str, Units], price: Units, locked: Units, allowance: Units, quorum: int
) -> set[str]:
    """Returns the earners of a job for which money is reserved ahead of their next work.

    All of them, until workers that are gone hold the allowance (`locked`). From then on only those that earned
    ESTABLISHED gradients, where these are a quorum: an identity that delivers once and leaves locks nothing more.
    """
    established = {worker for worker, units in earned.items() if units >= ESTABLISHED * price}
    return established if locked >= allowance and len(established) >= quorum else set(earned)


def rest_s(stalls: int, known: bool) -> float:
    """Returns how long a worker that left a place unanswered waits for its next one, in seconds.

    The time doubles with each of `stalls` in a row. A worker that delivered before (`known`) has one stall free.
    """
    counted = stalls - known
    return 0.0 if counted < 1 else min(LONGEST_REST_S, FIRST_REST_S * 2.0 ** min(counted - 1, 32))


@dataclass(frozen=True, slots=True)
class Tried:
    """A job's experience with newcomers. `stall_s` is how long a newcomer that stalls delays a task at most."""

    places: int
    """Replicas that a round starts with."""
    stalled: int
    """Workers that earned nothing in the job and left their last place unanswered."""
    delivered: int
    """Workers that earned something in the job."""
    since_stall_s: float
    stall_s: float


def at_once(tried: Tried) -> int:
    """Returns how many newcomers may hold places at the same time where workers that delivered before suffice."""
    if not tried.stalled:
        return max(1, tried.places // SHARE)
    doubled = min(max(0, tried.stalled - tried.delivered), 32)
    pause = min(LONGEST_REST_S, PAUSE * tried.stall_s * 2.0**doubled)
    return int(tried.since_stall_s >= pause)


def does_model_diverge(diverged: Collection[Party], others: Collection[Party]) -> bool:
    """Returns whether a round's diverged answers show that the model diverges, and not only their workers.

    A model that diverges does so for everybody. `others`: parties whose answers are finite, or still to come.
    Those that diverged have to be MANY owners, and more than the others. Wallets are free, so that any number of them
    of one network, or of one payout address, are one owner.
    """
    return _count_owners(diverged) >= max(MANY, _count_owners(others) + 1)


def list_other_owners(parties: Iterable[Party], diverged: Collection[Party]) -> list[Party]:
    """Returns the parties that share neither payout address nor network with those that diverged."""
    payouts, networks = {party.payout for party in diverged}, {party.network for party in diverged} - {None}
    return [party for party in parties if party.payout not in payouts and party.network not in networks]


def _count_owners(parties: Collection[Party]) -> int:
    networks = {party.network or party.payout for party in parties}
    return min(len(networks), len({party.payout for party in parties}))


def choose_filling_parties(parties: Iterable[Party], opening: Opening, places: int) -> list[Party]:
    """Returns the first of the parties that could fill the places together: separate ones, and none that tried."""
    chosen: list[Party] = []
    for party in parties:
        if len(chosen) >= places:
            break
        others = (*opening.parties, *chosen)
        if party.worker in opening.tried or any(is_same_party(party, other, opening.separation) for other in others):
            continue
        chosen.append(party)
    return chosen


def may_fill_places(known: Iterable[Party], opening: Opening, places: int) -> bool:
    """Returns whether workers that delivered before, all separate parties, could fill the places once they are free."""
    return len(choose_filling_parties(known, opening, places)) >= places


def count_lacking_places(known: Sequence[Party], idle: Iterable[Party], openings: Iterable[tuple[Opening, int]]) -> int:
    """Counts the places of all openings that no worker present could fill.

    `known` workers fill the places of each opening, since they are free again; an `idle` newcomer those of one.
    """
    left, count = list(idle), 0
    for opening, places in openings:
        chosen = choose_filling_parties((*known, *left), opening, places)
        count += max(0, places - len(chosen))
        left = [party for party in left if party not in chosen]
    return count


def in_turn(parties: Iterable[Party]) -> list[Party]:
    """Returns the parties in rounds over owners.

    Of the parties of one payout address or one network, the second comes after the first of all others.
    """
    seen: Counter[tuple[str, str]] = Counter()
    ranked = []
    for party in parties:
        owners = [("payout", str(party.payout))] + ([("network", party.network)] if party.network is not None else [])
        ranked.append((max(seen[owner] for owner in owners), party))
        seen.update(owners)
    return [party for _, party in sorted(ranked, key=lambda pair: pair[0])]
