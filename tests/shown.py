"""A job as a service shows it, for tests without one."""

from typing import Any

from gradmarket.demo.workers import JOB, PRICE
from gradmarket.market.job import JobSpec
from gradmarket.market.terms import JobState
from gradmarket.market.views.job_views import Costs, JobView

DIGEST = "blake3:" + "ab" * 32


def shown_job(**changed: Any) -> JobView:
    """Returns a finished job with four accepted gradients, with the fields `changed`."""
    costs = Costs(
        price=str(PRICE),
        at_most=str(10 * PRICE),
        budget=str(10 * PRICE),
        deposited=str(10 * PRICE),
        earned=str(4 * PRICE),
        refunded=str(6 * PRICE),
    )
    job = JobView(
        id="0123456789abcdef",
        name="digits",
        state=JobState.FINISHED,
        reason="",
        fault=None,
        notice="",
        spec=JobSpec.model_validate(JOB),
        publication=None,
        spec_digest=DIGEST,
        chain_job=1,
        unit="1",
        costs=costs,
        round=0,
        rounds=1,
        accepted=4,
        rejected=0,
        loss=0.1,
        metrics={"accuracy": 0.96},
        parameters=DIGEST,
        determinism_class=None,
        class_proven=False,
        task_flops=None,
        task_peak_bytes=None,
        expiry=None,
        claim_until=None,
        created_at=None,
        ended_at=None,
    )
    return job.model_copy(update=changed)
