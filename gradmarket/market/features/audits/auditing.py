"""Decides which accepted tasks a trusted auditor runs again, and how often.

    audited  <=>  H("audit", link, offer, root) < p * 2^256
    p = max(floor, 1 - tolerated / (1 - standing), least rate that the free stake covers)

`link` is the last link of the task's own hash chain (rules.secrets). The signed offer states the chain's anchor before
any worker is drawn. The link is opened only when the draw can no longer influence anybody. So a worker cannot tell an
audited task from another while it computes. The requester cannot choose whom it audits, and cannot deny an audit later.

This stops the *silent quorum*: workers that act as one and cheat only where they hold the majority. Votes never reveal
them. The second term bounds the wrong gradients that may pass, as far as the worker's record can tell:
(1 - p) * (1 - standing) <= tolerated. The floor holds at every reputation; without it a *sleeper* would wait until it
is no longer audited.

When an audit fails, the operator's other tasks that are not final are audited too. Where a task becomes final after its
operator's next `window` accepted tasks, (1 - p)^window of the lies of a worker that always lies become final.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from gradmarket.market.terms import Hash, domain_hash

WHOLE: Final = 2**256
LONGEST: Final = 4.0
"""Times the median of a round's norms. A merged answer longer than that is audited."""


def is_audit_drawn(link: Hash, offer: Hash, root: Hash, rate: float) -> bool:
    """Returns whether the task `offer`, accepted with the payload `root`, is audited at this rate."""
    return int.from_bytes(domain_hash("audit", link, offer, root), "big") < int(rate * WHOLE)


def judge_audit(accepted: str, found: str, before: str | None) -> bool | None:
    """Returns whether an audit confirms the accepted root; None where the auditor has to run the task once more.

    `found` is the root that the auditor computed now, `before` the one it computed in an earlier run. An auditor can
    err, and a conviction costs a record and a stake, so a conviction needs the same other root twice.
    """
    if found == accepted:
        return True
    return False if found == before else None


def judge_referral(roots: Collection[str], found: str, before: str | None) -> bool | None:
    """Returns whether one of the revealed `roots` is right; None where the auditor has to run the task once more.

    Two computations that agree are enough to accept one answer; to refuse all of them the auditor repeats itself.
    """
    if found in roots:
        return True
    return False if found == before else None


@dataclass(frozen=True, slots=True)
class Turn:
    """A job and its requester. `at`: when its oldest audit began to wait, or when an auditor last took one."""

    job: str
    requester: str
    at: float


def order_turns(waiting: Iterable[Turn], served: Iterable[Turn]) -> list[str]:
    """Returns the jobs that have audits waiting, in the order in which auditors take one of each.

    The order is by the time since the requester was last served, then the job, then by the wait of the audit: neither
    many audits nor many jobs of one requester delay another requester's.
    """
    of_job: dict[str, float] = {}
    of_requester: dict[str, float] = {}
    for turn in served:
        of_job[turn.job] = max(turn.at, of_job.get(turn.job, 0.0))
        of_requester[turn.requester] = max(turn.at, of_requester.get(turn.requester, 0.0))

    def rank(turn: Turn) -> tuple[float, float, float, str]:
        return of_requester.get(turn.requester, 0.0), of_job.get(turn.job, 0.0), turn.at, turn.job

    return [turn.job for turn in sorted(waiting, key=rank)]


def compute_deterring_rate(saved: float, benefit: float, at_risk: float) -> float:
    """Returns the audit rate above which cheating costs more than it gains: (c + B) / S.

    c is the cost that a cheat saves by not computing, B its further gain from a wrong gradient, S the stake that it
    loses. Pay that was redeemed is not at risk. Infinite where nothing is at risk. (Becker 1968; Belenkiy et al. 2008,
    "Incentivizing outsourced computation".)
    """
    return (saved + benefit) / at_risk if at_risk > 0.0 else math.inf


def list_long_answers(norms: Mapping[str, float]) -> list[str]:
    """Returns the tasks whose answers are audited for certain: far longer than the round's others; of two none is.

    `norms`: the L2 norms of a round's merged gradients, by task. `norm_bound` has to admit every honest gradient of a
    job, so that a lie may be a thousand times as long as the others of its round. A few of these, never drawn for an
    audit, would spoil the model for good. Where the workers are honest, the longest gradient of a round is rarely four
    times as long as half of them.
    """
    usual = median(norms.values()) if norms else 0.0
    return [task for task, norm in norms.items() if norm > LONGEST * usual]
