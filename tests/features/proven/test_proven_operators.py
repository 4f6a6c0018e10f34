"""Whose record a worker has: its own, or that of a payout key that signed for it; and bars that nobody moves out of."""

from collections.abc import Callable

import pytest

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.terms import Address, TaskState
from requester.features import consents
from requester.features import reputation as reputations
from requester.features.loss_change import scores
from requester.features.loss_change.scores import Score
from requester.store import identities, strikes
from requester.store.tables import Reputation, Worker
from tests.kit.behaviour import scaled
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
AUDITED = {"audit": {"probability": 1.0}}
X = Address("0x" + "11" * 20)
Y = Address("0x" + "22" * 20)


def signs_in(market: MarketFixture, worker: SimWorker, payout: Address, consent: int | None = None) -> None:
    with market.context.begin() as work:
        identities.sign_in(work, worker.address, payout, None, market.clock(), consent)


def operator_of(market: MarketFixture, worker: SimWorker) -> str:
    (row,) = market.all(Worker, Worker.address == worker.address)
    return str(row.operator)


def barred(market: MarketFixture) -> set[str]:
    return {row.operator for row in market.all(Reputation, Reputation.failed_at.is_not(None))}


def lied(market: MarketFixture, payout: Address | None, consent: int | None = None) -> list[SimWorker]:
    """Returns two workers that agree on a lie, both paid to `payout`, once an auditor found it."""
    liars = [market.worker(scaled(3.0), payout=payout, consent=consent) for _ in range(2)]
    market.worker()
    market.until(lambda: any(task.state == TaskState.ACCEPTED for task in market.tasks()))
    SimAuditor(market).work()
    return liars


def test_a_liar_that_names_anothers_payout_bars_itself_alone(new_market: NewMarket) -> None:
    market = new_market(separation=[], **AUDITED)
    victim = market.worker()
    victim.capacity = 0
    liars = lied(market, victim.address)
    assert barred(market) == {liar.address for liar in liars}
    market.worker(), market.worker()
    victim.capacity = 1
    SimAuditor(market).play()
    assert market.earned()[victim.address] > 0


def test_a_lie_bars_the_operator_that_vouched_and_the_wallet_wherever_it_goes(new_market: NewMarket) -> None:
    market = new_market(separation=[], **AUDITED)
    first, second = liars = lied(market, X, consent=1)
    assert barred(market) == {first.address, second.address, X}
    signs_in(market, first, Y, consent=1)
    innocent = market.worker(payout=Y, consent=1)
    with market.reading() as reader:
        rows = {row.address: row for row in reader.session.query(Worker)}
        told = [bool(operators_barred(market, rows[each.address])) for each in (*liars, innocent)]
    assert told == [True, True, False]
    assert Y not in barred(market)


def operators_barred(market: MarketFixture, row: Worker) -> set[str]:
    with market.reading() as reader:
        return strikes.barred_among(reader, {row.address, row.operator}, market.clock() - 1e6)


def test_a_worker_that_leaves_a_barred_operator_stays_barred(new_market: NewMarket) -> None:
    market = new_market(separation=[], **AUDITED)
    sibling = market.worker(payout=X, consent=1)
    sibling.capacity = 0
    lied(market, X, consent=1)
    assert sibling.address not in barred(market)
    signs_in(market, sibling, sibling.address)
    assert operator_of(market, sibling) == sibling.address
    assert sibling.address in barred(market)
    (row,) = market.all(Reputation, Reputation.operator == sibling.address)
    assert (row.failed, row.evidence) == (0, 0.0), "it lied in no audit of its own"


def test_passed_audits_stay_with_the_operator_when_a_worker_leaves(new_market: NewMarket) -> None:
    market = new_market(separation=[], **AUDITED)
    worker = market.worker(payout=X, consent=1)
    market.worker(), market.worker()
    SimAuditor(market).play()
    passed = {row.operator: row.passed for row in market.all(Reputation)}
    assert passed[X] > 0
    assert worker.address not in passed
    signs_in(market, worker, X)
    assert operator_of(market, worker) == worker.address
    with market.reading() as reader:
        assert not reputations.list_reputations(reader, worker.address)


def test_a_consent_is_taken_back_and_only_a_newer_one_counts(new_market: NewMarket) -> None:
    market = new_market()
    worker = market.worker(payout=X, consent=5)
    assert operator_of(market, worker) == X
    with market.context.begin() as work:
        assert consents.is_withdrawal_usable(work, worker.address, X, 1)
        assert consents.is_withdrawal_usable(work, worker.address, Y, 1), "its consent may come later"
        consents.withdraw_consents(work, worker.address, X, 5, market.clock())
        assert not consents.is_withdrawal_usable(work, worker.address, X, 5)
    assert operator_of(market, worker) == worker.address
    for old in (1, 5):
        with pytest.raises(SignatureRefused, match="withdrew this consent: sign in without one"):
            signs_in(market, worker, X, old)
    signs_in(market, worker, X, 6)
    assert operator_of(market, worker) == X


def test_a_sum_of_scores_goes_on_under_a_new_key(new_market: NewMarket) -> None:
    """A worker that changes its operator in the middle of a test would begin a new one each time."""
    market = new_market(tasks_per_round=2, replication={"name": "audited", "audit": 0.5})
    worker, other = market.worker(), market.worker()
    other.capacity = 0
    market.until(lambda: all(task.uploader for task in market.tasks()), worker)
    with market.context.begin() as work:
        for number, task in enumerate(market.tasks()):
            score = {"own": 0.0, "others": [], "trusted_own": 0.0, "trusted_others": [], "honest": None}
            score |= {"number": number, "total": float(number)}
            work.add(Score(task_id=task.id, job_id=market.job, operator=(worker.address, X)[number], **score))
        work.flush()

        def total(operator: Address, wallet: Address) -> float | None:
            found = scores.find_latest_score(work, market.job, operator, wallet)
            return found and found.total

        assert total(Y, worker.address) == 1.0, "of the newest under whatever key"
        assert total(worker.address, worker.address) == 0.0, "a key with a sum has its own"
        assert total(Y, other.address) is None
