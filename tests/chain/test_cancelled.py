"""A market on a real chain, cancelled while its deposit is bound in every way: a minute later it is free again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import select

from contracts.ledger import Ledger
from gradmarket.market.terms import AuditState, PanelSeatState, TaskState
from requester.features.auditors.panel_rows import PanelSeat
from requester.features.disputes.hearing_rows import TaskHearing
from requester.store.tables import Account, Job, Worker
from tests.databases import BOTH, NewDatabase
from tests.features.auditors.test_panels import TWO, claimed, panel
from tests.features.disputes.test_hearings import traced
from tests.features.proven.test_joining import join, open_proven
from tests.features.proven.test_proven import open_job
from tests.kit.behaviour import HONEST, NOISE, Behaviour, scaled
from tests.lanes import leave_to_full
from tests.onchain import open_on
from tests.requester.conftest import open_markets
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import key_of

NewMarket = Callable[..., MarketFixture]
LIE = scaled(3.0)
DEPOSIT = 400 * PRICE


@contextmanager
def open_markets_on(ledger: Ledger, database: NewDatabase) -> Iterator[NewMarket]:
    """Their jobs are opened on the chain, and no worker has money before the service reserves it."""
    with open_markets(ledger, database) as made:

        def make(**spec: Any) -> MarketFixture:
            job = open_on(ledger, iter([key_of("sender"), key_of("signer")]).__next__, deposit=DEPOSIT)
            market = made(chain_job=job.id, **spec)
            with market.context.begin() as work:
                row = work.get_one(Job, market.job)
                row.budget = row.deposited = DEPOSIT
            return market

        yield make


@pytest.fixture
def new_market(ledger: Ledger, new_database: NewDatabase) -> Iterator[NewMarket]:
    with open_markets_on(ledger, new_database) as made:
        yield made


def settle(market: MarketFixture) -> None:
    for _ in range(60):
        if not market.context.chain_worker.step():
            return
    raise AssertionError("the chain worker does not come to rest")


def cover(market: MarketFixture) -> None:
    """Every worker asks, and the service reserves for it on the chain in place of the fixture's money."""
    with market.context.begin() as work:
        for account in work.session.scalars(select(Account)):
            account.reserved = 0
    market.gather()
    settle(market)


def answer(market: MarketFixture, *behaviours: Behaviour) -> None:
    """Their answers to the only task are accepted."""
    for how in behaviours:
        market.worker(how)
    cover(market)
    market.until(lambda: market.task().state == TaskState.ACCEPTED)
    settle(market)


def seal_half(new_market: NewMarket) -> tuple[MarketFixture, int]:
    """One of a panel of two has sealed its answer."""
    market = new_market(audit=TWO)
    answer(market, HONEST, HONEST, HONEST)
    ann, _ = panel(market, None, None)
    ann.sit(claimed(ann))
    assert [seat.state for seat in market.all(PanelSeat)] == [PanelSeatState.SEALED]
    return market, 0


def outvote(new_market: NewMarket) -> tuple[MarketFixture, int]:
    """Two liars outvoted an honest one, and its price may be awarded yet."""
    market = new_market(audit={"probability": 1.0})
    answer(market, HONEST, LIE, LIE)
    assert [audit.state for audit in audits_of(market)] == [AuditState.DUE]
    return market, PRICE


def hear(new_market: NewMarket) -> tuple[MarketFixture, int]:
    """Both sides of a hearing are asked, and neither has answered."""
    market = traced(new_market)
    team = [market.worker(how) for how in (HONEST, LIE)]
    cover(market)
    for ask in (market.gather, market.commit, market.reveal):
        ask(*team)
    assert [hearing.ruling for hearing in market.all(TaskHearing)] == [None]
    return market, 0


def join_with_deposits(new_market: NewMarket) -> tuple[MarketFixture, int]:
    """Of eight newcomers that never answer, four have a deposit."""
    market, _ = open_proven(new_market, rounds=40)
    joined = [join(market, f"network {number}") for number in range(8)]
    with market.context.begin() as work:
        for one in joined[:4]:
            work.get_one(Account, (market.job, one.address)).at_risk = 16 * PRICE
        for one in market.workers[:2]:
            work.get_one(Worker, one.address).accepted_at = market.clock()
    cover(market)
    assert sum(market.account(one).reserved for one in joined[:4]) >= PRICE
    return market, 0


def ask_in_a_made_up_class(new_market: NewMarket) -> tuple[MarketFixture, int]:
    """Three that ask first, and for long: no auditor is of their class, so none of them gets a place."""
    market, _ = open_job(new_market)
    for _ in range(3):
        market.worker(NOISE, determinism_class="made up")
    cover(market)
    market.play(passes=20)
    assert market.replicas() == []
    return market, 0


def cancel(market: MarketFixture, ledger: Ledger, kept: int) -> float:
    """Cancels the job; returns the seconds until only `kept` units are free in the contract, or the minute's end."""
    chain_job, cancelled_at = market.the_job().chain_job or 0, market.clock()
    market.cancel()
    settle(market)
    while ledger.free(chain_job) != kept and market.clock() < cancelled_at + 55.0:
        market.lapse(5.0)
        settle(market)
    return market.clock() - cancelled_at


@BOTH
@pytest.mark.parametrize("bind", leave_to_full([outvote, seal_half, hear, join_with_deposits, ask_in_a_made_up_class]))
def test_a_minute_after_a_cancel_all_is_free_but_what_an_audit_may_award_and_the_silent_hold(
    new_market: NewMarket, ledger: Ledger, bind: Callable[[NewMarket], tuple[MarketFixture, int]]
) -> None:
    market, kept = bind(new_market)
    chain_job = market.the_job().chain_job or 0
    assert ledger.free(chain_job) > kept
    cancel(market, ledger, kept)
    assert ledger.free(chain_job) == kept
    accounts = market.all(Account, Account.job_id == market.job)
    held = sum(account.reserved - account.earned for account in accounts)
    assert ledger.job(chain_job).reserved == sum(account.reserved for account in accounts)
    assert held <= len([account for account in accounts if account.reserved]) * PRICE
    SimAuditor(market).work()
    settle(market)
    assert ledger.free(chain_job) == 0, "the award is its earner's now"
