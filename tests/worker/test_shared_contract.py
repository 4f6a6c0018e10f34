"""Two markets pay by one contract: neither can touch what the other has reserved for the worker."""

from collections.abc import Callable
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey

from contracts.ledger import Ledger
from gradmarket.market.job import Publication
from gradmarket.market.release import PROTOCOL
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Digest, JobId, Units
from gradmarket.market.wire.poll import UnusedReservation
from tests.kit.worker_context import fund_job
from tests.onchain import NewKey
from tests.worker.fake_market import FakeMarket
from worker.markets.market_session import Upkeep
from worker.markets.worker_context import WorkerContext
from worker.money.account_store import JobAccount
from worker.money.redeemer import Redeemer
from worker.protocol.in_flight import InFlightFolder


@pytest.fixture
def rival(ledger: Ledger, new_key: NewKey, publication: Publication, blobs: dict[Digest, bytes]) -> FakeMarket:
    """Another service on the contract, which says of every job that it is over."""
    job = fund_job(ledger, new_key(), new_key(), publication)
    return FakeMarket(job, publication, blobs, state="finished")


def open_upkeep(context: WorkerContext, folder: Path) -> Upkeep:
    redeemer = Redeemer(
        context.chain_view, context.wallet.key, context.account_store, context.journal, context.money, None
    )
    return Upkeep(context, redeemer, InFlightFolder(folder / "rival"))


def build_account(context: WorkerContext, market: FakeMarket) -> JobAccount:
    domain, signer = context.domain, address_of(market.job.signer)
    place = {"chain_id": domain.chain_id, "contract": domain.contract, "instance": domain.instance}
    more = {"chain_job": market.job.id, "job": JobId(market.publication.job), "signer": signer, "unit": context.unit(1)}
    return JobAccount.model_validate({**place, **more, "price": 7, "protocol": PROTOCOL})


def reserved(market: FakeMarket, key: PrivateKey) -> Units:
    return market.job.ledger.account(market.job.id, address_of(key)).reserved


@pytest.fixture
def at_rival(
    rival: FakeMarket, fake_market: FakeMarket, make_context: Callable[..., WorkerContext], worker_key: PrivateKey
) -> WorkerContext:
    """The worker at the rival; the first market has reserved 100 units for it too."""
    fake_market.job.reserve((address_of(worker_key), 100))
    return make_context(rival, reserved=0)


def test_a_market_ends_no_job_of_another(
    at_rival: WorkerContext, fake_market: FakeMarket, worker_key: PrivateKey, tmp_path: Path
) -> None:
    at_rival.account_store.record_offer(build_account(at_rival, fake_market))
    open_upkeep(at_rival, tmp_path).turn()
    assert reserved(fake_market, worker_key) == 100


def test_a_worker_that_leaves_a_market_keeps_what_another_reserves(
    at_rival: WorkerContext, fake_market: FakeMarket, worker_key: PrivateKey, tmp_path: Path
) -> None:
    at_rival.account_store.record_offer(build_account(at_rival, fake_market))
    open_upkeep(at_rival, tmp_path).close_all()
    assert reserved(fake_market, worker_key) == 100


def test_a_market_that_reserves_anew_what_was_released_costs_its_worker_gas_once(
    fake_market: FakeMarket, make_context: Callable[..., WorkerContext], worker_key: PrivateKey, tmp_path: Path
) -> None:
    """To reserve costs a quarter of the gas of a release."""
    context = make_context(fake_market)
    upkeep, seen = open_upkeep(context, tmp_path), list[Units]()
    for units in (0, 5):
        if units:
            fake_market.job.reserve((address_of(worker_key), units))
        named = UnusedReservation(chain_job=fake_market.job.id, earned=Units(0))
        context.unused = {JobId(fake_market.publication.job): named}
        upkeep.close_all()
        seen.append(reserved(fake_market, worker_key))
    assert seen == [0, 5]


def test_a_market_names_no_reservation_of_another(
    at_rival: WorkerContext, fake_market: FakeMarket, worker_key: PrivateKey, tmp_path: Path
) -> None:
    at_rival.unused = {JobId("mine"): UnusedReservation(chain_job=fake_market.job.id, earned=0)}
    open_upkeep(at_rival, tmp_path).turn()
    assert reserved(fake_market, worker_key) == 100
    assert not at_rival.account_store.accounts
