"""The service dies at any request to the node, before or after its effect: it goes on, and the books equal the chain.

Every run opens a job, reserves, settles two batches, has its worker redeem and takes the rest back, so that all kinds
of transactions are under way at some of these moments.
"""

from typing import Any

import pytest
from web3 import HTTPProvider, Web3
from web3.types import RPCEndpoint, RPCResponse

from contracts import claims
from contracts.ledger import Ledger
from contracts.transactions import require_receipt
from gradmarket.market.terms import JobState
from requester.store.tables import Transaction
from tests.chain.chain_fixture import BUDGET, PRICE, ChainFixture, check
from tests.lanes import leave_to_full
from tests.onchain import NewKey


class Killed(BaseException):
    """As SIGKILL: nothing handles it."""


class MortalProvider(HTTPProvider):
    """Kills the process at its `at`-th request."""

    def __init__(self, url: str, at: int, before: bool) -> None:
        super().__init__(url, exception_retry_configuration=None)
        self.left, self.before = at, before

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        self.left -= 1
        if self.left == 0 and self.before:
            raise Killed
        answer = super().make_request(method, params)
        if self.left == 0:
            raise Killed
        return answer


def mortal(ledger: Ledger, at: int, before: bool) -> Ledger:
    web3 = Web3(MortalProvider(str(ledger.web3.provider.endpoint_uri), at, before))  # type: ignore[attr-defined]
    web3.middleware_onion.remove("validation")
    return Ledger(web3, ledger.deployment)


def story(chain_fixture: ChainFixture, ledger: Ledger, new_key: NewKey, at: int, before: bool) -> tuple[str, Any, int]:
    """The run; how often it was killed."""
    kills = 0

    def rest() -> None:
        nonlocal kills
        try:
            chain_fixture.settle_down()
        except Killed:
            kills += 1
            chain_fixture.restart(ledger)
            chain_fixture.settle_down()

    job_id = chain_fixture.new_job()
    chain_fixture.restart(mortal(ledger, at, before))
    rest()
    worker = chain_fixture.joins(job_id, new_key())
    rest()
    chain_fixture.earns(job_id, worker)
    rest()
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    rest()
    chain_fixture.earns(job_id, worker)
    chain_fixture.set_job(job_id, state=JobState.FINISHED)
    rest()
    return job_id, worker, kills


@pytest.mark.parametrize(("at", "before"), leave_to_full([(at, at % 2 == 0) for at in range(5, 140, 11)]))
def test_killed_at_a_question(
    chain_fixture: ChainFixture, ledger: Ledger, new_key: NewKey, at: int, before: bool
) -> None:
    job_id, worker, kills = story(chain_fixture, ledger, new_key, at, before)
    assert kills == 1
    check(chain_fixture, job_id, worker, 2)
    require_receipt(claims.redeem(ledger, chain_fixture.key, *chain_fixture.voucher(job_id, worker)))
    chain_fixture.settle_down()
    job = chain_fixture.job(job_id)
    assert ledger.balance(worker) == 2 * PRICE
    assert job.deposited == BUDGET
    assert job.deposited - job.refunded == ledger.job(job.chain_job or 0).reserved
    assert len(chain_fixture.all(Transaction, Transaction.kind == "open")) == 1
