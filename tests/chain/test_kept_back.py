"""Money of a job that is over goes back at once, but for the pay that an open audit can still award."""

from gradmarket.market.terms import AuditState, JobState
from tests.chain.chain_fixture import PRICE, ChainFixture
from tests.lanes import FULL
from tests.onchain import NewKey


def cancelled_under_audit(chain_fixture: ChainFixture, new_key: NewKey) -> tuple[str, int]:
    """A job that is cancelled while nobody runs the audit of its only task, and its number on-chain."""
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    chain_fixture.settle_down()
    chain_fixture.earns(job_id, worker)
    chain_fixture.audits(job_id, AuditState.DUE)
    chain_fixture.set_job(job_id, state=JobState.CANCELLED)
    return job_id, chain_fixture.job(job_id).chain_job or 0


@FULL
def test_an_audit_that_nobody_runs_locks_nothing_that_it_cannot_award(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    _, chain_job = cancelled_under_audit(chain_fixture, new_key)
    assert chain_fixture.ledger.free(chain_job) > 0
    chain_fixture.settle_down()
    assert chain_fixture.ledger.free(chain_job) == 0


def test_the_price_of_an_outvoted_answer_stays_until_its_audit_is_over(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id, chain_job = cancelled_under_audit(chain_fixture, new_key)
    chain_fixture.outvotes(job_id, chain_fixture.joins(job_id, new_key()))
    chain_fixture.settle_down()
    assert chain_fixture.ledger.free(chain_job) == PRICE
    chain_fixture.audits(job_id, AuditState.PASSED)
    chain_fixture.clock.now += 60.0
    chain_fixture.settle_down()
    assert chain_fixture.ledger.free(chain_job) == 0
