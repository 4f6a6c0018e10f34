"""Moves of the money, honest and hostile, played in the reference ledger and on the real contract at once."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from contracts import calls
from contracts.calls import Call
from contracts.deployment import MIN_WINDOW_S
from contracts.packing import PackedGroup
from contracts.proofs import batch_root
from gradmarket.market.messages import Payout, Release, Voucher
from gradmarket.market.signing import Domain, Struct, address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Hash, Units
from tests.contracts.reference import Refusal
from tests.contracts.reference_stakes import Books
from tests.contracts.replay import Replay
from tests.kit.contract_calls import close_job

WEALTH = 500
KEYS = {name: PrivateKey(keccak(text=name)) for name in ("ana", "rob", "wim", "zoe", "sly", "judge", "juror", "signer")}
WHO = {name: address_of(key) for name, key in KEYS.items()}
COLD = Address("0x" + "c0" * 20)
HOLDERS = [*WHO.values(), COLD]
WORKERS = ("wim", "zoe", "sly")
JURY = [WHO["judge"], WHO["juror"]]

requesters = st.sampled_from(["ana", "ana", "ana", "rob", "sly"])
workers = st.sampled_from(WORKERS)
jobs = st.sampled_from([1, 1, 1, 2, 3])
amounts = st.integers(0, 60)
rows = st.lists(st.tuples(workers, st.integers(0, 40)), min_size=1, max_size=3)
mostly = st.sampled_from([True, True, True, False])


class Moves(RuleBasedStateMachine):
    """Plays a move on both sides and compares."""

    def __init__(self, replay: Replay) -> None:
        super().__init__()
        self.replay, self.market = replay, replay.ledger.deployment.contract
        replay.begin()
        self.books = Books(dict.fromkeys(HOLDERS, 0) | dict.fromkeys(map(WHO.get, KEYS), WEALTH), MIN_WINDOW_S)

    def teardown(self) -> None:
        self.replay.rewind()

    def move(self, by: str, call: Call, rule_: Callable[..., None], *arguments: object, timed: bool = True) -> None:
        expected = ""
        try:
            rule_(*arguments, *([self.replay.now] if timed else []))
        except Refusal as refusal:
            expected = str(refusal)
        refused = self.replay.play(KEYS[by], call)
        assert refused == expected, f"refused as {refused or 'nothing'} instead of {expected or 'nothing'}"
        self.compare()

    def compare(self) -> None:
        asked, expected = zip(*self.books_as_asked(), strict=True)
        assert self.replay.read_words(asked) == list(expected)

    def books_as_asked(self) -> Iterator[tuple[Call, list[int]]]:
        """Questions to the contract and the token, with the words of their answers as the reference has them."""
        ask, books = self.replay.market, self.books
        for holder in HOLDERS:
            yield self.replay.balance(holder), [books.wallets[holder]]
        yield self.replay.balance(self.market), [books.held]
        yield ask("toBurn"), [books.to_burn]
        for number, job in books.jobs.items():
            yield ask("free", number), [job.free(self.replay.now - 1)]
            for worker in map(WHO.__getitem__, WORKERS):
                a = job.account(worker)
                yield ask("account", number, worker), [a.reserved, a.settled, a.vouchered, a.withdrawn, a.credited_at]
                yield ask("due", number, worker), [books.due(number, worker, self.replay.now - 1)]
        for holder in WHO.values():
            yield ask("staker", holder), [books.stakes.get(holder, 0), books.exposed(holder)]

    def signed(self, by: str, message: Struct, instance: Hash | None = None) -> bytes:
        place = self.replay.ledger.domain()
        return sign_digest(
            KEYS[by], digest_struct(Domain(place.chain_id, place.contract, instance or place.instance), message)
        )

    def voucher(self, job: int, worker: str, cumulative: int, valid: bool) -> tuple[Voucher, bytes]:
        """An invalid one is the signer's own, of another history of the chain."""
        message = Voucher(job, WHO[worker], Units(cumulative))
        return message, self.signed("signer", message, None if valid else Hash(bytes(32)))


class Play(Moves):
    """Any account tries any move: the ledgers decide which are allowed."""

    @initialize()
    def first_job(self) -> None:
        self.open_job("ana", 200, 300, 200, 3, 20)
        self.reserve("ana", 1, [("wim", 60), ("zoe", 40)])

    @rule(by=requesters, deposit=st.integers(1, 200), lasts=st.integers(0, 400), window=st.integers(58, 200),
          bond=st.integers(0, 5), vest=st.sampled_from([0, 5, 30]))  # fmt: skip
    def open_job(self, by: str, deposit: int, lasts: int, window: int, bond: int, vest: int) -> None:
        expiry = self.replay.now + lasts
        windows = (2 * MIN_WINDOW_S, MIN_WINDOW_S, MIN_WINDOW_S) if bond else (0, 0, 0)
        terms = calls.OpenJob(
            Units(deposit), Amount(1), expiry, expiry + window, WHO["signer"], Hash(bytes(32)), *windows, bond
        )
        if vest := vest if bond else 0:
            terms = replace(terms, vest=Units(vest), vest_window=MIN_WINDOW_S, vest_quorum=calls.quorum_of(JURY, 2))
        call = calls.open_job(self.market, terms)
        self.move(by, call, self.books.open_job, WHO[by], deposit, expiry, expiry + window, bond, vest)

    @rule(seconds=st.sampled_from([1, 30, 59, 60, 61, 150]))
    def time_passes(self, seconds: int) -> None:
        self.replay.now += seconds

    @rule(by=requesters, job=jobs, amount=st.integers(1, 60))
    def top_up(self, by: str, job: int, amount: int) -> None:
        self.move(by, calls.top_up(self.market, job, Units(amount)), self.books.top_up, WHO[by], job, amount)

    @rule(by=requesters, job=jobs, given_=rows)
    def reserve(self, by: str, job: int, given_: list[tuple[str, int]]) -> None:
        named = [(WHO[worker], Units(units)) for worker, units in given_]
        self.move(by, calls.reserve(self.market, job, named), self.books.reserve, WHO[by], job, named)

    @rule(by=requesters, job=jobs, given_=rows, packed=st.booleans(), in_order=mostly)
    def settle(self, by: str, job: int, given_: list[tuple[str, int]], packed: bool, in_order: bool) -> None:
        batch = self.books.jobs[job].batches + (not in_order) if job in self.books.jobs else 0
        groups = [PackedGroup(WHO[worker], Units(price), (Hash(keccak(text=worker)),)) for worker, price in given_]
        rooted = calls.settle_rooted(self.market, job, batch, batch_root(groups), groups)
        call = calls.settle_packed(self.market, job, batch, groups) if packed else rooted
        self.move(by, call, self.books.settle, WHO[by], job, batch, [(each.worker, each.price) for each in groups])

    @rule(by=workers, job=jobs, worker=workers, cumulative=amounts, valid=mostly)
    def redeem(self, by: str, job: int, worker: str, cumulative: int, valid: bool) -> None:
        call = calls.redeem(self.market, *self.voucher(job, worker, cumulative, valid))
        self.move(by, call, self.books.redeem, job, WHO[worker], cumulative, valid)

    @rule(by=workers, given_=st.lists(st.tuples(jobs, workers, amounts, mostly), min_size=1, max_size=3))
    def redeem_batch(self, by: str, given_: list[tuple[int, str, int, bool]]) -> None:
        call = calls.redeem_batch(self.market, [self.voucher(*row) for row in given_])
        named = [(job, WHO[worker], cumulative, valid) for job, worker, cumulative, valid in given_]
        self.move(by, call, self.books.redeem_batch, named)

    @rule(by=workers, job=jobs, worker=workers)
    def collect(self, by: str, job: int, worker: str) -> None:
        call = calls.collect(self.market, job, WHO[worker])
        self.move(by, call, self.books.collect, job, WHO[worker])

    @rule(by=workers, job=jobs, reserved=amounts)
    def release(self, by: str, job: int, reserved: int) -> None:
        call = calls.release(self.market, job, Units(reserved))
        self.move(by, call, self.books.release, WHO[by], job, reserved)

    @rule(
        by=requesters,
        job=jobs,
        given_=st.lists(st.tuples(workers, amounts, st.sampled_from([0, 0, 1]), mostly), max_size=3),
    )
    def close_job(self, by: str, job: int, given_: list[tuple[str, int, int, bool]]) -> None:
        releases, named = [], []
        for worker, reserved, ahead, honest in given_:
            nonce = self.books.nonces.get((job, WHO[worker]), 0) + ahead
            message = Release(job, WHO[worker], Units(reserved), nonce)
            releases.append((message, self.signed(worker if honest else "judge", message)))
            named.append((WHO[worker], reserved, nonce, honest))
        self.move(by, close_job(self.market, job, releases), self.books.close_job, WHO[by], job, named)

    @rule(by=requesters, job=jobs, amount=amounts)
    def withdraw_free(self, by: str, job: int, amount: int) -> None:
        call = calls.withdraw_free(self.market, job, Units(amount))
        self.move(by, call, self.books.withdraw_free, WHO[by], job, amount, timed=False)

    @rule(by=requesters, job=jobs)
    def refund(self, by: str, job: int) -> None:
        self.move(by, calls.refund(self.market, job), self.books.refund, WHO[by], job)

    @rule(worker=workers, payout=st.sampled_from([COLD, WHO["wim"]]), honest=mostly)
    def set_payout(self, worker: str, payout: Address, honest: bool) -> None:
        message = Payout(WHO[worker], payout, self.books.payout_nonces.get(WHO[worker], 0))
        signature = self.signed(worker if honest else "judge", message)
        call = calls.set_payout_for(self.market, message, signature)
        self.move("rob", call, self.books.set_payout, WHO[worker], payout, honest, timed=False)
