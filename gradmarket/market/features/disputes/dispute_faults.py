"""Which jobs may have a referee hear answers that differ."""

from gradmarket.market.job_fields import JobFields
from gradmarket.market.job_parts import PrivateData
from gradmarket.market.rules import replication, verifiers
from gradmarket.market.rules.replication import BEST, STRANGER


def find_dispute_fault(spec: JobFields) -> str:
    """Returns why nobody can trace the job's tasks, the field first; empty where anybody can or no referee is named."""
    if spec.disputes != "referee":
        return ""
    if isinstance(spec.data, PrivateData):
        return "disputes: the rows stay with their holders, and a referee computes on them: leave it out"
    if spec.step.by_row:
        return "disputes: noise by row gives no bits twice, so that honest answers differ: leave it out"
    if spec.step.leaves:
        return "disputes: answers commit to windows, which an audit repeats: leave out step.window, or disputes"
    if spec.verifier.name != verifiers.DEFAULT:
        return f"disputes: a referee compares bits: set verifier to {verifiers.DEFAULT}"
    policy = replication.load_policy(spec.replication.name)
    if max(policy.plan(spec.replication, lead).maximum for lead in (STRANGER, BEST)) < 2:
        return "disputes: each task has one answer, which none can differ from: take a replication that votes"
    return ""
