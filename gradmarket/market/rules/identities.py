"""Decides what an identity may do that costs nothing, so that lying under any number of them pays less than work.

1. An operator with fewer than PROOF audited right answers in a determinism class is a *newcomer* there. It works alone,
   each answer is audited before it is paid, and it votes on nobody.
2. Newcomers get one task in SHARE, counted over all rounds; every second while fewer than twice the votes of a task are
   proven, and all while fewer than these are: until then proven ones go on alone too.
3. Proven operators vote. Only unanimity decides; any split is referred to an audit (rules.voting, Plan.referred).
4. Of unanimous tasks a share p is audited (rules.auditing), and all of the last LAST rounds.
5. Equal wrong answers of two, or a wrong accepted answer, convict. A lone wrong answer costs its pay and the standing:
   a machine may err, two do not err alike.
6. The voted seats of a round go to a *crew*: as many proven ones present as it has seats, with the lowest numbers.
   Each one's number is drawn anew every TERM rounds, at an offset of its own. So a ring that never leaves does not
   gather, and one conviction takes out a large part of the ring that is at work.
7. One seat at a time per identity, and the next not before an honest machine of the class could have finished. What a
   worker says of its own capacity counts for nothing.

A ring of any size whose members return under fresh identities has at most (1 - p) / p * 1 / (SHARE * R * PROOF) of all
tasks wrong at the end, 1.04 % by these constants: each lie of R proven ones is found with probability p, and costs
R * PROOF tasks of newcomers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from gradmarket.market.digests import domain_hash
from gradmarket.market.rules import reputation
from gradmarket.market.rules.assignment import Party, is_same_party
from gradmarket.market.terms import Address, Hash

PROOF: Final = 16
"""Audited right answers of an operator in a class until it votes there."""
LEFT: Final = 0.9
"""The share of these that may be left by decay."""
SHARE: Final = 8
"""Newcomers get one task of so many."""
LAST: Final = 2
"""The last rounds, whose tasks are all audited: what is found wrong there would cost no later work."""
TERM: Final = 100
"""Rounds after which a worker's number in the crew is drawn anew."""


def is_proven(standing: float, proof: int = PROOF) -> bool:
    """Returns whether an operator of this standing (rules.reputation) in a class votes there."""
    return standing >= reputation.compute_supported_standing(LEFT * proof)


def count_newcomers_tasks(before: int, tasks: int, proven: int, replicas: int) -> int:
    """Returns how many of a round's `tasks` newcomers may have; `before` tasks were of earlier rounds.

    `proven` counts the separate proven parties that are present, `replicas` the votes of a task.
    """
    if proven < replicas:
        return tasks
    share = 2 if proven < 2 * replicas else SHARE
    return (before + tasks) // share - before // share


def choose_newcomer(seed: Hash, order: Sequence[Address], standings: Mapping[Address, float]) -> Address:
    """Returns which newcomer gets a seat, given the draw's order of those that may have it.

    By the seed, every second seat goes to the one that is closest to its proof, so that some are proven soon.
    """
    if seed[0] % 2:
        return max(order, key=lambda worker: standings.get(worker, 0.0))
    return order[0]


def compute_crew_number(secret: Hash, worker: Address, number: int) -> Hash:
    """Returns a worker's number in round `number`, by the job's secret: nobody can choose its own."""
    offset = int.from_bytes(domain_hash("crew offset", secret, worker.encode())[:8], "big") % TERM
    term = (number + offset) // TERM
    return domain_hash("crew", secret, term.to_bytes(8, "big"), worker.encode())


def choose_crew(
    secret: Hash, present: Iterable[Party], number: int, tasks: int, replicas: int, separation: Sequence[str]
) -> frozenset[Address]:
    """Returns the proven workers that vote in round `number`, which has `tasks` tasks of `replicas` votes.

    Of one party there are at most `tasks`, so that separate ones can fill each task.
    """
    crew: list[Party] = []
    for party in sorted(present, key=lambda one: compute_crew_number(secret, one.worker, number)):
        if len(crew) >= tasks * replicas:
            break
        if sum(is_same_party(party, other, separation) for other in crew) < tasks:
            crew.append(party)
    return frozenset(party.worker for party in crew)


def compute_next_turn(leased_at: float, of_class: Sequence[float], own: Sequence[float]) -> float:
    """Returns from when on a worker may be drawn again that got its last seat at `leased_at`.

    `of_class` and `own` are the seconds from a seat to its commitment of audited right answers: of the worker's class,
    and of itself. A worker that answers at once waits as long as an honest one would work.
    """
    usual = median(of_class) if of_class else 0.0
    return leased_at + min([usual, *own])


def list_convicted(wrong: Mapping[str, str]) -> set[str]:
    """Returns which of these unpaid wrong answers convict, given each one's root: those that are not alone with it."""
    counts = Counter(wrong.values())
    return {replica for replica, root in wrong.items() if counts[root] > 1}


def compute_final_wrong(audit: float, replicas: int, proof: int = PROOF, share: int = SHARE) -> float:
    """Returns the share of all tasks that a ring leaves wrong which always returns under fresh identities."""
    return (1.0 - audit) / audit / (share * replicas * proof)
