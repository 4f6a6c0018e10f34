"""The demo's outcome: the service's accounts compared with the chain."""

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from contracts import events
from contracts.ledger import Ledger
from gradmarket.client import RequesterClient
from gradmarket.demo.children import DemoFailed
from gradmarket.demo.workers import GOAL, PRICE
from gradmarket.market.terms import Address, BatchState, Digest, JobState, ReplicaState
from gradmarket.market.views.job_views import JobView, Stats
from gradmarket.market.wire.poll import hash_of

SETTLE_S: Final = 60.0
LOOK_EVERY_S: Final = 0.2
DIGEST: Final = re.compile(r"blake3:[0-9a-f]{64}")


class WorkerOutcome(Protocol):
    """A hired worker, in a process or a container."""

    @property
    def behaviour(self) -> str: ...

    @property
    def payout(self) -> Address: ...

    def find_entry(self, event: str) -> dict[str, Any]:
        """Returns its newest log entry of this event."""


@dataclass(frozen=True)
class Pay:
    """One worker's pay, in the token's smallest unit; `balance` is its payout address's, read from the chain."""

    address: str
    payout: str
    behaviour: str
    accepted: int
    rejected: int
    why: dict[str, int]
    """Reasons of its rejections, without their digests, and the count of each."""
    earned: int
    balance: int
    kept: int
    """Balance of the worker's own address."""


@dataclass(frozen=True)
class Escrow:
    """The job's escrow, read from the chain, in the token's smallest unit; `left`: still in the contract."""

    deposited: int
    paid: int
    refunded: int
    left: int


@dataclass(frozen=True)
class DemoOutcome:
    job: JobView
    stats: Stats
    workers: list[Pay]
    escrow: Escrow
    served: str
    """Digest of the parameters' bytes as served."""
    last_round: str
    checks: dict[str, bool] = field(default_factory=dict)


def wait_until_settled(market: RequesterClient, ledger: Ledger, job_id: str) -> None:
    """Waits until every record is on-chain and the rest is refunded to the requester.

    Raises DemoFailed if it is not.
    """
    _wait_until(lambda: _all_settled(market, job_id), "not every accepted gradient is settled")
    chain_job = _chain_job(market.job(job_id))
    _wait_until(lambda: ledger.free(chain_job) == 0, "the requester does not take the rest back")
    _wait_until(lambda: _is_refund_recorded(market, ledger, job_id), "the books lack the chain's refund")


def _is_refund_recorded(market: RequesterClient, ledger: Ledger, job_id: str) -> bool:
    """Returns whether the service has recorded the whole refund: it comes in parts, each some time after its block."""
    job = market.job(job_id)
    return int(job.costs.refunded) == _fetch_escrow(ledger, job).refunded > 0


def fetch_demo_outcome(
    market: RequesterClient, ledger: Ledger, job_id: str, workers: Sequence[WorkerOutcome], folder: Path
) -> DemoOutcome:
    job = market.job(job_id)
    closed = [updated for one in market.rounds(job_id) if (updated := one.updated) is not None]
    stats, lines = market.stats(job_id), {line.address: line for line in market.workers(job_id)}
    verdicts, pay = list(market.verdicts(job_id)), list[Pay]()
    for worker in workers:
        address = worker.find_entry("wallet")["address"]
        line = lines.get(address)
        mine = [one for one in verdicts if one.worker == address and one.state is ReplicaState.REJECTED]
        pay.append(
            Pay(
                address=address,
                payout=worker.payout,
                behaviour=worker.behaviour,
                accepted=line.accepted if line else 0,
                rejected=line.rejected if line else 0,
                why=dict(Counter(DIGEST.sub("…", one.reason) for one in mine)),
                earned=int(line.earned) if line else 0,
                balance=ledger.balance(worker.payout),
                kept=ledger.balance(address),
            )
        )
    outcome = DemoOutcome(
        job=job,
        stats=stats,
        workers=pay,
        escrow=_fetch_escrow(ledger, job),
        served=market.download(job_id, folder / "parameters.safetensors"),
        last_round=closed[-1] if closed else "",
    )
    outcome.checks.update(check_outcome(outcome))
    return outcome


def check_outcome(outcome: DemoOutcome) -> dict[str, bool]:
    """Returns each condition for a successful demo, and whether it holds."""
    escrow, claimed = outcome.escrow, outcome.job.costs
    cheats = [pay for pay in outcome.workers if pay.behaviour != "honest"]
    honest = [pay for pay in outcome.workers if pay.behaviour == "honest"]
    return {
        "the job finished": outcome.job.state is JobState.FINISHED,
        f"accuracy on held-out rows is {GOAL} or more": find_accuracy(outcome.job) >= GOAL,
        "every cheat was paid nothing": all(pay.earned == pay.balance == pay.kept == 0 for pay in cheats),
        "each honest worker's balance is its accepted gradients x price": all(
            pay.balance == pay.earned == pay.accepted * PRICE and pay.kept == 0 for pay in honest
        ),
        "honest workers hold all that was paid": escrow.paid == sum(pay.balance for pay in honest),
        "deposited = paid + refunded": escrow.deposited == escrow.paid + escrow.refunded and escrow.left == 0,
        "the service's books agree": escrow.refunded == int(claimed.refunded) and escrow.paid == int(claimed.earned),
        "the served parameters are the last round's": outcome.served == outcome.last_round == outcome.job.parameters,
    }


def find_accuracy(job: JobView) -> float:
    return float((job.metrics or {}).get("accuracy", 0.0))


def _fetch_escrow(ledger: Ledger, job: JobView) -> Escrow:
    """Reads the escrow. The refund is the part of the deposit that left without being paid out, by the contract's
    count.
    """
    number, unit = _chain_job(job), int(job.unit)
    now = ledger.job(number)
    digest = hash_of(Digest(job.spec_digest or ""))
    opened = events.find_opened(ledger, now.requester, digest)
    if opened is None or opened.job != number:
        raise DemoFailed(f"the chain has no job of this publication at {number}")
    paid = sum(payment.amount for payment in events.all_paid(ledger, number))
    return Escrow(
        deposited=opened.deposited * unit,
        paid=paid * unit,
        refunded=(opened.deposited - now.deposited) * unit,
        left=ledger.balance(ledger.deployment.contract),
    )


def _chain_job(job: JobView) -> int:
    if job.chain_job is None:
        raise DemoFailed(f"job {job.id} is not on-chain")
    return job.chain_job


def _all_settled(market: RequesterClient, job_id: str) -> bool:
    stats = market.stats(job_id)
    done = sum(batch.gradients for batch in stats.settlements if batch.state == BatchState.SETTLED)
    return done == stats.accepted


def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + SETTLE_S
    while not condition():
        if time.monotonic() > end:
            raise DemoFailed(otherwise)
        time.sleep(LOOK_EVERY_S)
