"""Measures how well a job's checks find wrong answers, by tasks whose right answer is known otherwise.

A task is *planted* where an auditor computed it before anybody answered: its answer is known beforehand, and its
workers cannot tell it from another. Which tasks may be planted follows from the last link of the task's own hash chain
(rules.secrets), which the service alone knows until it can influence nobody:

    planted  <=>  H("plant", link, offer) < share * 2^256

A finished task that is handed out again would be no plant: its answer is published. A task that was drawn for an audit
serves likewise, since the draw does not depend on the worker. With v the share of wrong answers that votes outvote, and
p the probability of an audit, checks find v + (1 - v) p of them.
"""

from gradmarket.market.features.audits.auditing import WHOLE
from gradmarket.market.job_fields import JobFields
from gradmarket.market.rules import verifiers
from gradmarket.market.terms import Hash, domain_hash


def is_planted(link: Hash, offer: Hash, share: float) -> bool:
    """Returns whether an auditor may compute the task `offer` before anybody answers it."""
    return int.from_bytes(domain_hash("plant", link, offer), "big") < int(share * WHOLE)


def compute_catch_rate(wrong: int, caught: int, rate: float) -> float | None:
    """Returns the share of wrong answers that votes or an audit of this rate find; None without any wrong answer."""
    return (caught + (wrong - caught) * rate) / wrong if wrong else None


def compute_false_alarm_rate(right: int, alarms: int) -> float | None:
    """Returns the share of right answers that votes took for wrong ones; None without any right answer."""
    return alarms / right if right else None


def find_planted_fault(spec: JobFields) -> str:
    """Returns why no tasks of this job can be planted, the field first; empty where they can, or are not to be."""
    if not spec.audit or not spec.audit.planted or (not spec.private and spec.verifier.name == verifiers.DEFAULT):
        return ""
    return f"audit.planted: compares bits, which takes the verifier {verifiers.DEFAULT} on open rows"
