"""A market of free identities in simulation: proven ones that vote, newcomers that work alone, and a ring that lies.

A round is one draw of its tasks. The ring knows its members and a whole task before it answers, shares one computation
among a task's seats, and comes back with a fresh identity as soon as one is barred. Everybody is proven at the start,
the ring too, which is its best case. Audits that were drawn for a round end one round later; lies that they find are
taken back together with all rounds that were merged meanwhile. In the last rounds, and in those that follow an accepted
lie, each task has one answer, which is audited before it is accepted.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from gradmarket.market.features.proven import seat_rules as identity_rules
from gradmarket.market.features.proven.seat_rules import Newcomer
from gradmarket.market.rules import newcomers
from gradmarket.market.rules.assignment import Party
from gradmarket.market.rules.overlap import ROUNDS_BEHIND
from gradmarket.market.rules.replication import fixed, proven
from gradmarket.market.terms import Address, Hash, Plan, Units

RENEWED: Final = identity_rules.TERM
MAJORITY: Final = fixed.plan(fixed.Settings())


@dataclass(frozen=True, slots=True)
class Rules:
    """The proposed rules; `replicas` equal answers decide, anything else an audit."""

    replicas: int = 3
    rate: float = 0.2
    """The probability that a unanimous task is audited."""
    evidence: int = proven.PROOF
    """Audited right answers before an identity votes."""
    newcomers: float = 1 / proven.SHARE
    """The share of a round's tasks that newcomers get, one task at least."""
    vested: int = 16
    """Last prices of an identity that a conviction burns."""
    closing: int = proven.LAST
    """Last rounds, in which one proven worker answers each task alone, and an audit decides."""
    alert: int = proven.ALERT
    """Rounds after an accepted lie in which the same holds; 0 for none."""
    window: int | None = None
    """Newest rounds that a failed audit may take back; None: as a job that names none (count_final_rounds)."""

    def count_final_rounds(self, market: "RingMarket") -> int:
        return self.window or proven.count_final_rounds(market.tasks, market.rounds)


@dataclass(frozen=True, slots=True)
class RingMarket:
    workers: int
    tasks: int
    rounds: int = 200


Wants = Callable[["Moment"], bool]


@dataclass(frozen=True, slots=True)
class Moment:
    """The ring's knowledge of a task: `held` of its `replicas` seats are the ring's; `spent`: lies of this round."""

    held: int
    replicas: int
    round: int
    rounds: int
    spent: int
    chance: float
    """Drawn evenly from 0 to 1."""

    @property
    def unanimous(self) -> bool:
        return self.held == self.replicas


@dataclass(frozen=True, slots=True)
class Adversary:
    """A ring's behaviour: whether it lies with all of its seats in a task, and its further habits."""

    wants: Wants
    alone: bool = False
    """Its newcomers lie too."""
    leaves: bool = False
    """Identities that lied are given up at once, with fresh ones in their place."""
    rotates: int = 0
    """Half of the ring pauses, and the halves change places after this many rounds."""
    instant: bool = False
    """It answers without delay and asks again at once."""
    flood: int = 0
    """Fresh identities for each honest worker, beside the ring's proven ones."""
    roams: bool = False
    """Each identity comes back from a network that the job has not seen; else from the one that it had."""


ADVERSARIES: Final[Mapping[str, Adversary]] = {
    "honest": Adversary(lambda _: False),
    "always": Adversary(lambda _: True, alone=True),
    "quorum": Adversary(lambda now: now.held >= fixed.quorum(now.replicas)),
    "unanimous": Adversary(lambda now: now.unanimous),
    "unanimous_half": Adversary(lambda now: now.unanimous and now.chance < 0.5),
    "once_and_leave": Adversary(lambda now: now.unanimous, leaves=True),
    "patient": Adversary(lambda now: now.unanimous and not now.spent),
    "rotating": Adversary(lambda now: now.unanimous, rotates=20),
    "roaming": Adversary(lambda now: now.unanimous, roams=True),
    "dissent": Adversary(lambda now: now.held == 1),
    "late": Adversary(lambda now: now.unanimous and now.round >= now.rounds - 20),
    "late_two": Adversary(lambda now: now.unanimous and now.round >= now.rounds - 2),
    "instant_always": Adversary(lambda _: True, alone=True, instant=True),
    "instant_unanimous": Adversary(lambda now: now.unanimous, instant=True),
    "flood": Adversary(lambda now: now.unanimous, flood=10),
    "flood_of_liars": Adversary(lambda now: now.unanimous, alone=True, flood=10),
}
LYING: Final = tuple(name for name in ADVERSARIES if name != "honest")


@dataclass(slots=True)
class RingOutcome:
    """Sums over a job, in gradients."""

    tasks: int = 0
    wrong: int = 0
    """Tasks whose answer is wrong at the job's end."""
    seats: int = 0
    audits: int = 0
    again: int = 0
    """Computations of repeated tasks."""
    rounds_again: int = 0
    ring_seats: int = 0
    ring_paid: int = 0
    """Pay of the ring, less the amounts that convictions burnt."""
    ring_computed: int = 0
    honest_unpaid: int = 0

    @property
    def wrong_share(self) -> float:
        return self.wrong / self.tasks

    @property
    def pay(self) -> float:
        """The ring's pay for each gradient that it computed; for each seat where it computed none."""
        return self.ring_paid / self.ring_computed if self.ring_computed else self.seat_pay

    @property
    def seat_pay(self) -> float:
        return self.ring_paid / max(1, self.ring_seats)

    @property
    def seat_share(self) -> float:
        return self.ring_seats / self.seats

    @property
    def unpaid_share(self) -> float:
        return self.honest_unpaid / max(1, self.seats - self.ring_seats)

    @property
    def computations(self) -> float:
        """Returns seats, audits and repeated computations for each right task."""
        return (self.seats + self.audits + self.again) / max(1, self.tasks - self.wrong)


@dataclass(slots=True, eq=False)
class _Identity:
    ring: bool
    evidence: int
    place: float
    vested: deque[int]
    slot: int
    """Its number within the ring."""
    network: int
    offset: int
    """Its place is drawn anew in the rounds that are this much short of a multiple of RENEWED."""


@dataclass(slots=True)
class _Voted:
    """An accepted task of the last two rounds; its members' wrong answer is `wrong`."""

    members: Sequence[_Identity]
    wrong: bool
    drawn: bool
    over: bool = False


@dataclass
class _Play:
    market: RingMarket
    rules: Rules
    adversary: Adversary
    random: np.random.Generator
    out: RingOutcome = field(default_factory=RingOutcome)
    everybody: list[_Identity] = field(default_factory=list)
    recent: deque[list[_Voted]] = field(init=False)
    """The rounds that may still be taken back."""
    turns: int = 0
    spent: int = 0
    networks: int = 0
    served: dict[int, int] = field(default_factory=dict)
    """The round in which each network last had a newcomers' task."""
    number: int = 0
    """The round that is played."""
    alert_until: int = -1
    """The last round in which tasks are answered alone since a lie was accepted."""
    again_from: int = 0
    """The first of the recent rounds that was done again in this round, by its place; their number for none."""

    def __post_init__(self) -> None:
        self.recent = deque(maxlen=self.rules.count_final_rounds(self.market))


def play(market: RingMarket, share: float, adversary: Adversary, rules: Rules, seed: int) -> RingOutcome:
    """Returns the outcome of a job under the proposed rules, with this share of ring identities."""
    game = _Play(market, rules, adversary, np.random.default_rng(seed))
    ring = round(share * market.workers)
    game.everybody = [_identity(game, number < ring, rules.evidence, number) for number in range(market.workers)]
    flood = adversary.flood * (market.workers - ring)
    game.everybody += [_identity(game, True, 0, number) for number in range(flood)]
    for number in range(market.rounds):
        _round(game, number)
    game.again_from = len(game.recent) - 1
    _audit_drawn(game, game.recent[-1])
    game.out.wrong += sum(voted.wrong and not voted.over for round_ in game.recent for voted in round_)
    return game.out


def _identity(game: _Play, ring: bool, evidence: int, slot: int, network: int | None = None) -> _Identity:
    offset = int(game.random.integers(RENEWED))
    game.networks += network is None
    network = game.networks if network is None else network
    return _Identity(ring, evidence, game.random.random(), deque(maxlen=game.rules.vested), slot, network, offset)


def _round(game: _Play, number: int) -> None:
    rules, tasks = game.rules, game.market.tasks
    for one in game.everybody:
        if (number + one.offset) % RENEWED == 0:
            one.place = game.random.random()
    present = game.everybody
    if game.adversary.rotates:
        turn = number // game.adversary.rotates
        present = [one for one in present if not (one.ring and (one.slot + turn) % 2)]
    proven = [one for one in present if one.evidence >= rules.evidence]
    fresh = [one for one in present if one.evidence < rules.evidence]
    alone = tasks
    if len(proven) >= rules.replicas:  # over all rounds, as features.proven.seat_rules.count_newcomers_tasks does
        share = 0.5 if len(proven) < 2 * rules.replicas else rules.newcomers
        alone = min(int((number + 1) * tasks * share) - int(number * tasks * share), len(fresh))
    chosen = list(_choose_newcomers(game, fresh, alone))
    # the untried ones that have a task beyond the newcomers' share, one of each network
    oldest, left = number - identity_rules.UNTRIED_ROUNDS, [one for one in fresh if one not in chosen]
    untried = {one.network: one for one in left if not one.evidence and game.served.get(one.network, -1) <= oldest}
    beyond = identity_rules.compute_share(len(proven), rules.replicas)
    count = min(identity_rules.count_untried_tasks(beyond, tasks), len(untried))
    chosen += [list(untried.values())[index] for index in game.random.permutation(len(untried))[:count]]
    alone = len(chosen)
    game.out.seats += alone
    game.out.audits += alone
    for one in chosen:  # audited for certain: the auditor's result is the gradient where it is wrong
        game.served[one.network] = number
        game.out.ring_seats += one.ring
        if one.ring and game.adversary.alone:
            one.evidence = 0
        else:
            one.evidence += 1
            game.out.ring_computed += one.ring
            _pay(game, one)
    game.spent, game.number = 0, number
    if len(game.recent) == game.recent.maxlen:
        game.out.wrong += sum(voted.wrong and not voted.over for voted in game.recent[0])
    game.recent.append([])
    game.again_from = len(game.recent) - 1
    for members in _deal(game, proven, tasks - alone):
        _vote(game, members, number)
    if len(game.recent) > 1:
        _audit_drawn(game, game.recent[-2])
    game.out.tasks += tasks


def _choose_newcomers(game: _Play, fresh: list[_Identity], count: int) -> Iterator[_Identity]:
    """Every second seat goes to the newcomer that is closest to its proof, the others by draw."""
    begun = [one for one in fresh if one.evidence]
    left = list(fresh)
    for _ in range(count):
        if not left:  # a task more than newcomers: they take a second one
            left = list(fresh)
        game.turns += 1
        one = max(begun, key=lambda each: each.evidence) if begun and game.turns % 2 else None
        one = one or left[int(game.random.integers(len(left)))]
        left.remove(one)
        if one in begun:
            begun.remove(one)
        yield one


def _pay(game: _Play, one: _Identity) -> None:
    if one.ring:
        game.out.ring_paid += 1
        one.vested.append(1)


def _deal(game: _Play, proven: list[_Identity], tasks: int) -> Iterator[list[_Identity]]:
    """Deals the crew, as many of the lowest places as there are seats, over the tasks; again where it is too few."""
    size = game.rules.replicas
    crew = sorted(proven, key=lambda one: one.place)[: size * tasks]
    left: list[_Identity] = []
    for _ in range(tasks):
        if len(left) < size:
            left = [crew[index] for index in game.random.permutation(len(crew))]
        yield [left.pop() for _ in range(size)]


def _vote(game: _Play, members: list[_Identity], number: int) -> None:
    out, rules, market = game.out, game.rules, game.market
    alone = number >= market.rounds - rules.closing or number <= game.alert_until
    size = 1 if alone else rules.replicas
    members = [one for one in members[:size] if one.evidence >= rules.evidence]  # members barred since are replaced
    ring = [one for one in members if one.ring]
    out.seats += size
    out.ring_seats += len(ring)
    now = Moment(len(ring), size, number, market.rounds, game.spent, game.random.random())
    lies = bool(ring) and game.adversary.wants(now)
    game.spent += lies
    out.ring_computed += bool(ring) and not lies
    if lies and (alone or len(ring) < len(members)):
        # The auditor decides. A lone wrong answer costs pay and standing; equal wrong answers of two convict.
        out.audits += 1
        if len(ring) == 1:
            ring[0].evidence = 0
        else:
            _convict(game, ring)
        return
    for one in ring:
        _pay(game, one)
    out.audits += alone
    drawn = not alone and game.random.random() < rules.rate
    game.recent[-1].append(_Voted(tuple(members), lies, drawn, over=alone))
    if lies and game.adversary.leaves:
        for one in ring:
            _replace(game, one)


def _audit_drawn(game: _Play, round_: list[_Voted]) -> None:
    for voted in round_:
        if voted.drawn and not voted.over:
            voted.over = True
            game.out.audits += 1
            if voted.wrong:
                _convict(game, voted.members, _take_back(game, round_))


def _convict(game: _Play, members: Sequence[_Identity], lie: int | None = None) -> None:
    """Bars the identities, burns their vested pay, and audits their tasks of the recent rounds.

    Where a wrong answer was accepted, in round `lie`, and a job keeps more rounds than it must, all tasks of these are
    audited.
    """
    if lie is not None and game.rules.alert:
        last = identity_rules.find_last_alert_round(lie, game.number, game.rules.alert)
        game.alert_until = max(game.alert_until, last)
    everything = lie is not None and (game.recent.maxlen or 0) > ROUNDS_BEHIND
    guilty = [one for one in members if one.ring]
    for one in guilty:
        game.out.ring_paid -= len(one.vested)
        one.vested.clear()
    for round_ in list(game.recent):
        for voted in round_:
            theirs = everything or any(one is member for one in guilty for member in voted.members)
            if theirs and not voted.over:
                voted.over = True
                game.out.audits += 1
                if voted.wrong:
                    _convict(game, voted.members, _take_back(game, round_))
    for one in guilty:
        _replace(game, one)


def _take_back(game: _Play, round_: list[_Voted]) -> int:
    """Does the task again; where its round was merged, that round is replayed, and all later ones are done again.

    Returns the round's number.
    """
    computed = 2 if game.rules.alert else game.rules.replicas  # one answer and its audit, or a vote
    game.out.again += computed
    place = next(place for place, one in enumerate(game.recent) if one is round_)
    if place < game.again_from:
        later = list(game.recent)[place + 1 : game.again_from + 1]
        game.out.again += sum(map(len, later)) * computed
        game.out.rounds_again += len(later) + (game.again_from == len(game.recent) - 1)
        game.again_from = place
    return game.number + 1 - len(game.recent) + place


def _replace(game: _Play, one: _Identity) -> None:
    """Replaces an identity by a fresh one of the same owner."""
    for index, other in enumerate(game.everybody):
        if other is one:
            game.everybody[index] = _identity(game, True, 0, one.slot, None if game.adversary.roams else one.network)
            one.evidence = 0
            return


def play_majority(
    market: RingMarket, share: float, adversary: Adversary, seed: int, plan: Plan = MAJORITY
) -> RingOutcome:
    """Returns the outcome of a job of a plain majority vote by `plan`: no audits, and newcomers vote at once.

    Replicas are drawn among those that ask. Honest workers take one task in each wave of a round; a worker that answers
    at once asks again before the others can, and its own word of its capacity counts.
    """
    random, out = np.random.default_rng(seed), RingOutcome()
    honest = market.workers - round(share * market.workers)
    ring = market.workers - honest + adversary.flood * honest
    share_now = ring / (ring + honest)
    for number in range(market.rounds):
        spent, idle = 0, (honest, ring)
        for _ in range(market.tasks):
            if idle[0] + idle[1] < plan.first_wave or (adversary.instant and not idle[0] and ring < plan.first_wave):
                idle = (honest, ring)
            held = int(random.hypergeometric(idle[1], idle[0], plan.first_wave))
            idle = idle[0] - plan.first_wave + held, ring if adversary.instant else idle[1] - held
            now = Moment(held, plan.first_wave, number, market.rounds, spent, random.random())
            lies = held > 0 and adversary.wants(now)
            spent += lies
            others = plan.first_wave - held
            while lies and not plan.decides(others + held, max(others, held)):
                more = plan.next_wave(others + held, max(others, held))
                if more:
                    joined = int(random.binomial(more, share_now))
                    held, others = held + joined, others + more - joined
                else:  # no quorum: the task is tried anew
                    out.seats += others + held
                    out.ring_seats += held
                    out.honest_unpaid += others
                    held = int(random.binomial(plan.first_wave, share_now))
                    others = plan.first_wave - held
            wrong = lies and held > others
            out.tasks += 1
            out.wrong += wrong
            out.seats += others + held
            out.ring_seats += held
            out.ring_computed += bool(held) and not lies
            out.ring_paid += 0 if lies and not wrong else held
            out.honest_unpaid += others if wrong else 0
    return out


FLOODS: Final = ("works", "leaves", "hoards")
"""A flood's habits: it answers right, takes places and never answers, or has money reserved and asks no more."""


@dataclass
class _Queue:
    """Newcomers in the order in which they asked; the last `waiting` are honest, and `deposit` is theirs alone."""

    parties: Sequence[Party]
    waiting: int
    deposit: bool
    hoards: bool
    market: RingMarket
    rules: Rules
    random: np.random.Generator
    answers: dict[Party, int]
    """The right answers of those that ask and are not proven."""
    prices: int
    """The most gradients whose money newcomers may hold that earned nothing."""
    secret: Hash
    held: dict[Party, bool] = field(default_factory=dict)
    """Those that hold a price and earned nothing, and whether they have a deposit."""
    covered: set[Party] = field(default_factory=set)
    served: dict[str | None, int] = field(default_factory=dict)

    @property
    def honest(self) -> Sequence[Party]:
        return self.parties[-self.waiting :]

    def reserve(self, number: int) -> bool:
        """Reserves money as the service does once in round `number`, from 1; returns whether anybody got some."""
        left = self.prices - len(self.held)
        unbacked = sum(not deposit for deposit in self.held.values())
        without = identity_rules.count_open_prices(self.prices, unbacked, number - 1, self.market.rounds)
        queue = identity_rules.order_newcomers(self._list_newcomers(number, ()))
        due = identity_rules.list_due(self.secret, number, queue, self.market.tasks, proven.SHARE)
        held = Counter(party.network or "" for party in self.held)
        due = [one for one in due if not one.covered]
        funded = identity_rules.choose_funded(due, held, left, min(left, without))
        for one in funded:
            self.held[one.party] = one.deposit
            self.covered.add(one.party)
            if self.hoards and one.party not in self.honest:
                del self.answers[one.party]
        return bool(funded)

    def seat(self, number: int) -> Sequence[Party]:
        """Returns the holders of the newcomers' places of round `number`, from 1, each with one.

        Only those with money get one, and money is reserved anew once a place is taken.
        """
        tasks, replicas = self.market.tasks, self.rules.replicas
        share = identity_rules.count_newcomers_tasks((number - 1) * tasks, tasks, 2 * replicas, replicas)
        holders: list[Party] = []
        for place in range(share + identity_rules.count_untried_tasks(proven.SHARE, tasks)):
            self.reserve(number)
            queue = identity_rules.order_newcomers(self._list_newcomers(number, holders))
            queue = [one for one in queue if one.covered]
            if place >= share:
                queue = identity_rules.draw_untried(self.secret, number, queue)[:1]
            if queue:
                worker = identity_rules.choose_newcomer(Hash(self.random.bytes(32)), queue)
                holders.append(next(one.party for one in queue if one.party.worker == worker))
                self.served[holders[-1].network] = number
        return holders

    def _list_newcomers(self, number: int, holders: Sequence[Party]) -> Iterator[Newcomer]:
        oldest = number - identity_rules.UNTRIED_ROUNDS
        for joined, party in enumerate(self.parties):
            if party in self.answers and party not in holders:
                served, standing = self.served.get(party.network, 0), self.answers[party] / self.rules.evidence
                untried = not standing and (not served or served <= oldest)
                backed = self.deposit and party in self.honest
                yield Newcomer(party, standing, served, joined, backed, party in self.covered, untried)


def count_rounds_until_paid(
    market: RingMarket,
    rules: Rules,
    waiting: int,
    flood: int,
    networks: int,
    seed: int,
    deposit: bool = False,
    habit: str = "works",
) -> list[int]:
    """Returns the round, from 1, of the first pay of each of `waiting` honest newcomers, each of an owner of its own;
    one beyond the market's rounds for each that is never paid.

    Before them `flood` identities of `networks` networks asked, and had as much money reserved as they could. Money and
    places are given by features.proven.seat_rules, where the deposit pays for all votes, enough proven ones are there
    and audits are in time. `deposit`: whether the honest ones have one. `habit`: one of FLOODS; the networks of those
    that leave rest from then on.
    """
    random = np.random.default_rng(seed)
    parties = [_build_party(index, f"flood {index % networks}") for index in range(flood)]
    parties += [_build_party(flood + index, f"honest {index}") for index in range(waiting)]
    places = market.tasks * rules.replicas
    prices = newcomers.compute_allowance(Units(market.rounds * places), Units(places))
    asking, secret = dict.fromkeys(parties[:flood], 0), Hash(random.bytes(32))
    queue = _Queue(parties, waiting, deposit, habit == "hoards", market, rules, random, asking, prices, secret)
    while queue.reserve(1):
        pass
    queue.answers |= dict.fromkeys(queue.honest, 0)
    paid: dict[Party, int] = {}
    for number in range(1, market.rounds + 1):
        for party in queue.seat(number):
            if habit == "leaves" and party not in queue.honest:
                queue.answers = {one: count for one, count in queue.answers.items() if one.network != party.network}
                continue
            queue.answers[party] += 1
            queue.held.pop(party, None)
            if party in queue.honest:
                paid.setdefault(party, number)
            if queue.answers[party] == rules.evidence:
                del queue.answers[party]
        if len(paid) == waiting:
            break
    return [paid.get(party, market.rounds + 1) for party in queue.honest]


def _build_party(number: int, network: str) -> Party:
    wallet = Address(f"0x{number:040x}")
    return Party(wallet, str(number), wallet, network)
