"""Decides the rights of identities, which cost nothing, so that lying under any number of them pays less than work.

1. An operator with fewer than PROOF audited right answers in a determinism class is a *newcomer* there. It works alone,
   each answer is audited before it is paid, and it votes on nobody.
2. Newcomers get one task in SHARE, counted over all rounds; every second while fewer than twice the votes of a task are
   proven, and all while fewer than these are: until then proven ones go on alone too. Half of their seats go to the one
   closest to its proof, the others to the first of a queue: turns go over payouts and networks, so wallets of one
   network are served as one. Of these, half are for newcomers that have a deposit at risk in the job: it comes back,
   and its owner waits behind other deposits alone.
   Untried newcomers, which never delivered and whose network had no newcomers' task lately, have up to half of a
   round's tasks besides while audits are in time, one for each network, by a draw of the job's secret. So behind k
   networks one waits (k + 2) / tasks rounds on average, whether these work or leave their places. No rule serves it
   sooner than (k + 2) / (2 m) where m are tried a round: nothing tells it from the k before its first answer. Within
   ten rounds are 10 tasks - 2 networks; a deposit passes any number. An identity gains one answer by it at most.
   The money for newcomers goes to no network that holds as much as is left (choose_funded). Half of it is kept from
   those without a deposit: for deposits at once, for the others as rounds pass (count_open_prices) or, once none
   passes, one by one, and all where the job takes no deposits. Whoever holds all of that half later puts PROOF prices
   at risk for each.
   Where proven ones would suffice, one that never delivered gets no seat while such a one of its network or owner left
   its own (find_pausing_place), unless it has a deposit. While any such place counts, a proven one takes over the seat
   of a worker later than its class (features.late.expected_s), and the first to answer is paid. So a flood of fresh
   networks that leave their seats makes a round at most as long as that time and a further answer.
3. Proven operators vote. Only unanimity decides; any split is referred to an audit (rules.voting, Plan.referred).
4. Of unanimous tasks a share p is audited (audits.auditing). In a job of few rounds p is higher, since a ring that was
   proven before is not spent when the job ends (compute_stock_wrong). In the last LAST rounds, and after an accepted
   lie (find_last_alert_round), one proven worker answers each task alone and is audited for certain before it is paid:
   this costs two computations, where a vote costs three, and replayed rounds are not lied in again.
   Where auditing outgrows the auditor, a hidden seat more takes the place of these audits in as many tasks: R + 1
   proven ones have to agree there, and the auditor looks at splits alone. The offer does not tell them from others. A
   ring that is a share f of the crew, and lies where it knows of R seats of its own, is found in p (1 - f) of its lies.
   Where no auditor exists, the same seat joins the plain vote of proven ones; up to 2 R of them vote on a split, and a
   later attempt that is answered with one voice halves the evidence of every worker that answered otherwise before.
5. Equal wrong answers of two, or a wrong accepted answer, convict. A lone wrong answer costs its pay and the standing:
   a machine may err, two do not err alike.
6. The voted seats of a round go to a *crew*: as many proven operators present as it has seats, with the lowest numbers.
   Each one's number is drawn anew every TERM rounds, at an offset of its own. So a ring that never leaves does not
   gather, and one conviction takes out a large part of the ring that is at work.
7. One seat at a time per wallet, of those that vote per operator, and the next not before an honest machine of the
   class could have finished. A worker's own claim of capacity counts for nothing, and a proven operator has
   money reserved for one wallet at a time that earned nothing.

A ring of any size whose members return under fresh identities has at most (1 - p) / p * 1 / (SHARE * R * PROOF) of all
tasks wrong at the end, 1.04 % by these constants: each lie of R proven ones is found with probability p, and costs
R * PROOF tasks of newcomers.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gradmarket.market.rules import newcomers
from gradmarket.market.rules.assignment import Party, is_same_party
from gradmarket.market.rules.replication.proven import ALERT, SHARE
from gradmarket.market.terms import Address, Hash, domain_hash

TERM: Final = 100
"""Rounds after which a worker's number in the crew is drawn anew."""

UNTRIED_ROUNDS: Final = 64
"""Rounds after a newcomers' task of its network until a network counts as untried again."""

DRAW_TERM: Final = 8
"""Rounds after which the order of untried networks is drawn anew."""

AUDITED_WITHIN_S: Final = 30.0
"""An audit that waits no longer than this is not late, however short rounds are."""


@dataclass(frozen=True, slots=True)
class Newcomer:
    """An unproven worker that asks for work."""

    party: Party
    standing: float
    served_at: float = 0.0
    """When a worker of its payout address or of its network last had a newcomers' task of the job; 0 for never."""
    joined_at: float = 0.0
    deposit: bool = False
    """Whether it has a stake at risk in the job that is worth PROOF of its prices."""
    covered: bool = False
    """Whether money is reserved for it in the job."""
    untried: bool = False
    """Whether it never delivered, and its network had no newcomers' task in the last UNTRIED_ROUNDS rounds."""

    @property
    def is_unknown(self) -> bool:
        """Whether it never delivered, and has no deposit."""
        return self.standing <= 0.0 and not self.deposit


def compute_share(proven: int, replicas: int) -> int:
    """Returns n where newcomers get one task in n; `proven` counts the separate proven parties that are present."""
    if proven < replicas:
        return 1
    return 2 if proven < 2 * replicas else SHARE


def count_newcomers_tasks(before: int, tasks: int, proven: int, replicas: int) -> int:
    """Returns how many of a round's `tasks` newcomers may have; `before` tasks were of earlier rounds.

    `proven` counts the separate proven parties that are present, `replicas` the votes of a task.
    """
    share = compute_share(proven, replicas)
    return (before + tasks) // share - before // share


def count_untried_tasks(share: int, tasks: int) -> int:
    """Returns how many of a round's `tasks` untried newcomers may have, where newcomers get one in `share` besides."""
    return tasks // 2 if share == SHARE else 0


def order_newcomers(waiting: Iterable[Newcomer]) -> list[Newcomer]:
    """Returns the queue: first by when the payout and network were last served, longest ago first, then by joining.

    Of one payout or network the second comes after the first of all others (rules.newcomers.in_turn).
    """
    known = {one.party.worker: one for one in waiting}
    ordered = sorted(known.values(), key=lambda one: (one.served_at, one.joined_at, one.party.worker))
    return [known[party.worker] for party in newcomers.in_turn(one.party for one in ordered)]


def count_open_prices(prices: int, held: int, number: int, rounds: int, still: int = 0) -> int:
    """Returns how many further ones of the `prices` for newcomers those without a deposit may get in round `number`.

    `held` are those of such ones that earned nothing, whether these wait, work or are gone. They leave half of all to
    others in the first round and none in the last: money comes back with the job alone, but each round has newcomers of
    its own. A round has places for fewer than half of the prices at once, so honest newcomers wait for none. The
    round is open for `still` times compute_watched_s: each opens one more, so that leavers stop no job for good; those
    that hold all `prices` do not either (rules.newcomers.count_reservable).
    """
    kept = max(0, prices * max(0, rounds - number) // (2 * rounds) - still)
    return max(0, prices - kept - held)


def choose_funded(queue: Iterable[Newcomer], held: Mapping[str, int], left: int, without: int) -> list[Newcomer]:
    """Returns the newcomers that get one of `left` prices reserved, by the queue's order.

    Those without a deposit get `without` of them at most. Of these a network, or else a payout address, gets none while
    it holds as many prices, earning nothing, as they may still get: the first holds half of them at most.
    """
    counts, funded = Counter(held), list[Newcomer]()
    for one in queue:
        owner = one.party.network or one.party.payout
        if left > 0 and (one.deposit or counts[owner] < min(left, without)):
            counts[owner], left, without = counts[owner] + 1, left - 1, without - (not one.deposit)
            funded.append(one)
    return funded


def draw_untried(secret: Hash, number: int, queue: Iterable[Newcomer]) -> list[Newcomer]:
    """Returns one untried newcomer of each network, in the order of round `number`, by the job's secret.

    The order stays for DRAW_TERM rounds, so that whoever is drawn has its money before the next draw. Money reserved
    before counts for nothing between networks: a flood that has it already would come before all others.
    """
    firsts: dict[str, Newcomer] = {}
    for one in queue:
        network = one.party.network or ""
        if one.untried and (network not in firsts or one.covered > firsts[network].covered):
            firsts[network] = one

    def draw(network: str) -> Hash:
        return domain_hash("untried", secret, (number // DRAW_TERM).to_bytes(8, "big"), network.encode())

    return [firsts[network] for network in sorted(firsts, key=draw)]


def list_due(secret: Hash, number: int, queue: Sequence[Newcomer], tasks: int, share: int) -> list[Newcomer]:
    """Returns the newcomers of the queue that should have money in round `number`, of `tasks` tasks.

    Those that get a seat by turn in two rounds, where newcomers get one task in `share`; the same number of those with
    a deposit; and the untried ones that are drawn for a round.
    """
    most = 2 * max(1, tasks // share)
    untried = draw_untried(secret, number, queue)[: count_untried_tasks(share, tasks)]
    return list(dict.fromkeys([*queue[:most], *untried, *[one for one in queue if one.deposit][:most]]))


def choose_newcomer(seed: Hash, queue: Sequence[Newcomer]) -> Address:
    """Returns which newcomer gets a seat.

    By the seed, every second seat goes to the one that is closest to its proof, so that some are proven soon; and of
    the others every second one to the first that has a deposit.
    """
    begun = [one for one in queue if one.standing > 0.0]
    if begun and seed[0] % 2:
        return max(begun, key=lambda one: one.standing).party.worker
    backed = [one for one in queue if one.deposit]
    return (backed if backed and seed[1] % 2 else queue)[0].party.worker


def count_rounds_until_seat(queue: Sequence[Newcomer], worker: Address, tasks: int, share: int) -> int:
    """Returns within how many rounds of `tasks` tasks a worker of the queue has a seat, on average.

    Newcomers get one task in `share`. The worker has not begun: each seat of others that have takes one from the queue.
    An untried one is drawn among k other networks in (k + 2) / 2 draws on average.
    """
    own = next(one for one in queue if one.party.worker == worker)
    ahead = [one for one in queue[: queue.index(own)] if not own.deposit or one.deposit]
    begun = any(one.standing > 0.0 for one in queue if one != own)
    backed = own.deposit or any(one.deposit for one in queue)
    rounds = math.ceil((len(ahead) + 1) * share * (1 + begun) * (1 + backed) / tasks)
    draws = count_untried_tasks(share, tasks) if own.untried else 0
    others = {one.party.network for one in queue if one.untried} - {own.party.network}
    return min(rounds, math.ceil((len(others) + 2) / (2 * draws))) if draws else rounds


def compute_crew_number(secret: Hash, operator: str, number: int) -> Hash:
    """Returns an operator's number in round `number`, by the job's secret: nobody can choose its own."""
    offset = int.from_bytes(domain_hash("crew offset", secret, operator.encode())[:8], "big") % TERM
    term = (number + offset) // TERM
    return domain_hash("crew", secret, term.to_bytes(8, "big"), operator.encode())


def list_operators(parties: Iterable[Party]) -> list[Party]:
    """Returns one wallet of each operator, the first by address: further ones under one record cost nothing."""
    return list({one.operator: one for one in sorted(parties, key=lambda one: one.worker, reverse=True)}.values())


def choose_crew(
    secret: Hash, present: Iterable[Party], number: int, tasks: int, replicas: int, separation: Sequence[str]
) -> frozenset[Address]:
    """Returns the proven workers that vote in round `number`, which has `tasks` tasks of `replicas` votes.

    An operator has one seat, whatever number of wallets it has. Of one party there are at most `tasks`, so that
    separate ones can fill each task.
    """
    crew: list[Party] = []
    for party in sorted(list_operators(present), key=lambda one: compute_crew_number(secret, one.operator, number)):
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


def find_last_alert_round(lie: int, found: int, rounds: int = ALERT) -> int:
    """Returns the last round whose tasks are answered alone since a wrong answer of round `lie` was accepted.

    `found`: the newest round that had begun when an audit found it. These are all replayed rounds and the `rounds`
    after the lie's own; where it is found later than in the next one, the `rounds` from that one on: so they are never
    over before they begin.
    """
    return max(lie + 1, found) + rounds - 1


def is_auditor_outgrown(waited_s: float, round_s: float) -> bool:
    """Returns whether audits come too slowly: one waited longer than workers took for a whole round."""
    return waited_s > max(round_s, AUDITED_WITHIN_S)


def is_seat_hidden(secret: Hash, rate: float) -> bool:
    """Returns whether a task has a further seat in place of an audit, by its secret, hidden until the task ends."""
    return int.from_bytes(domain_hash("hidden seat", secret), "big") < int(rate * 2**256)


@dataclass(frozen=True, slots=True)
class LeftPlace:
    """A place of a job that a worker which earned nothing there left unanswered, or gave back. `at`: when it got it."""

    at: float
    operator: str
    network: str | None


def find_pausing_place(party: Party, left: Iterable[LeftPlace]) -> LeftPlace | None:
    """Returns the place that bars a worker without deliveries from a seat alone, where proven ones would suffice.

    `left`: the places that such workers left within compute_watched_s. No worker of an operator or network that left
    one gets another meanwhile; None for all others, however many networks left theirs: this rule bounds the cost of
    each to the job. A payout address counts for its operator alone: otherwise anybody could name another's address and
    keep its newcomers waiting.
    """
    own = (one for one in left if one.operator == party.operator or (one.network or "") == party.network)
    return max(own, key=lambda one: one.at, default=None)


def list_unpaused(queue: Iterable[Newcomer], left: Sequence[LeftPlace]) -> list[Newcomer]:
    """Returns the newcomers of the queue that may have a seat alone where proven ones would suffice."""
    return [one for one in queue if not one.is_unknown or find_pausing_place(one.party, left) is None]
