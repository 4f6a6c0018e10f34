"""Does all chain work of the service in steps: `step` may be called at any moment, and killed at any moment."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sqlalchemy import exists, or_, select

from contracts import local
from contracts.calls import mint
from contracts.ledger import Ledger
from contracts.transactions import execute, mined
from gradmarket.market.terms import Address, Amount, JobState, TaskState, Units
from gradmarket.network.chain_errors import ChainUnreachable, ForeignChain, GasTooDear, LocalChainFailed, NodeRefused
from requester.chain import (
    accusing,
    funding,
    leader_lease,
    mirror,
    owner,
    reconcile,
    reservations,
    sender,
    settlement_batches,
)
from requester.chain.chain_context import UNDER_WAY, ChainContext
from requester.chain.chain_jobs import UNBATCHED
from requester.store import tasks
from requester.store.event_log import tell
from requester.store.progress import CHAIN
from requester.store.tables import Earned, Job, Task, Transaction, Trouble

NOTHING: Final = Units(0)
GAS_MONEY: Final = 10**19
"""Wei that the sender keeps on a local chain."""
LOOK_S: Final = 5.0
"""Longest time between full steps, in seconds, even where neither notifier, database nor chain reports any work."""


class ChainWorker:
    """`trouble` says why no chain work is done; empty where it is done. A foreign chain stops the work for good.

    `notified` is set by whoever has work for it. Without it, every moment may have work.
    """

    def __init__(self, chain: ChainContext, notified: threading.Event | None = None) -> None:
        self._chain = chain
        self._notified = notified
        self._look_at = 0.0
        self._connected = False
        self._looked: int | None = None
        self.trouble = ""
        self._told: str | None = None

    def wanted(self) -> bool:
        """Whether a step may find work; costs one query and one call, where a step costs twenty."""
        if self._notified is None or self._notified.is_set() or self._chain.clock() >= self._look_at:
            return True
        try:
            return self._chain.ledger.height() != self._looked or self._due()
        except (ChainUnreachable, NodeRefused):
            return True  # the step reports it

    def _due(self) -> bool:
        """Whether the database has a pending transaction, a job to open or to fund, or gradients to settle.

        Where an owner opens and funds jobs, a new block shows that instead.
        """
        old = self._chain.clock() - self._chain.policy.settle_every_s
        done = or_(Job.ended_at.is_not(None), Task.state == TaskState.FINAL)
        waiting = exists().where(Earned.job_id == Job.id, *UNBATCHED, Earned.at <= old, Task.id == Earned.task_id, done)
        cases = [
            exists().where(Transaction.sender == self._chain.sender, Transaction.state.in_(UNDER_WAY)),
            exists().where(Job.chain_job.is_not(None), waiting),
        ]
        if self._chain.owner is None:
            cases += [
                exists().where(Job.state == JobState.AWAITING_FUNDS, Job.chain_job.is_(None)),
                exists().where(Job.chain_job.is_not(None), Job.ended_at.is_(None), Job.budget > Job.deposited),
            ]
        with self._chain.reading() as reader:
            return bool(reader.session.scalar(select(or_(*cases))))

    def step(self) -> bool:
        """Does everything that can be done now; returns whether anything moved, so that another step may find more."""
        if self._notified is not None:
            self._notified.clear()
        moved = self._step()
        self._look_at = 0.0 if moved else self._chain.clock() + LOOK_S
        return moved

    def _step(self) -> bool:
        if not leader_lease.hold(self._chain):
            return False
        moved = self._tried()
        self._tell()
        return moved

    def _tried(self) -> bool:
        try:
            self._connect()
            moved = self._work()
            self.trouble = sender.refused(self._chain)
            return moved
        except ChainUnreachable as error:
            self._connected, self.trouble = False, str(error)
            return self._revived()
        except GasTooDear as error:
            self.trouble = error.detail
        except NodeRefused as error:
            self.trouble = str(error)
        except ForeignChain as error:
            self._foreign(error)
        return False

    def _revived(self) -> bool:
        """Restarts the service's own chain; returns whether it did. The next step continues from its saved state."""
        try:
            return self._chain.revive()
        except LocalChainFailed as error:
            self.trouble = str(error)
            return False

    def _tell(self) -> None:
        """Stores `trouble` where it changed, so that every process can report it; only the lease holder gets here."""
        if self._told != self.trouble:
            with self._chain.begin() as work:
                before = work.get(Trouble, CHAIN)
                if before is not None and before.said and not self.trouble:
                    tasks.offer_declined_again(work, self._chain.clock())
                work.session.merge(Trouble(part=CHAIN, said=self.trouble))
            self._told = self.trouble

    @property
    def sender(self) -> Address:
        """Whose gas the transactions take."""
        return self._chain.sender

    def to_sign(self, job: Job, added: Units = NOTHING) -> list[owner.ToSign]:
        """Returns what the money's owner must sign now for the job, if its budget grows by `added` units."""
        chain = self._chain
        if chain.owner is None:
            return []
        return owner.to_sign(chain, job, replace(funding.terms(chain, job), amount=Units(job.budget + added)), added)

    def leave(self) -> None:
        """Gives up the lease at an orderly shutdown, so that the next process takes over at once."""
        leader_lease.leave(self._chain)

    def _connect(self) -> None:
        """Verifies that this is the database's chain: completely after a disconnect, by its instance at every step."""
        if self._connected:
            self._chain.ledger.verify_instance()
            return
        self._chain.ledger.verify()
        reconcile.everything(self._chain)
        self._connected = True

    def _work(self) -> bool:
        chain = self._chain
        moved = reconcile.rewound(chain)
        moved |= self._follow()
        dear: GasTooDear | None = None
        for part in (
            funding.open_jobs,
            funding.top_up_jobs,
            reservations.step,
            settlement_batches.step,
            funding.close_jobs,
            accusing.step,
            reservations.drop_late,
            sender.push,
        ):
            try:
                moved |= part(chain)
            except GasTooDear as error:
                dear = error  # what is sent already goes on
        moved = self._follow() or self._watch() or moved
        if dear is not None:
            raise dear
        return moved

    def _follow(self) -> bool:
        touched = sender.follow(self._chain)
        for job_id in touched - {""}:
            mirror.job(self._chain, job_id)
        return bool(touched)

    def _watch(self) -> bool:
        """Copies what workers did on-chain since the last look; returns whether anything was copied."""
        last = self._chain.ledger.block().number
        first, self._looked = (last if self._looked is None else self._looked) + 1, last
        return first <= last and mirror.changed(self._chain, first, last)

    def _foreign(self, error: ForeignChain) -> None:
        self._connected = False
        if self.trouble == str(error):
            return
        self.trouble = str(error)
        with self._chain.begin() as work:
            for job in work.session.scalars(select(Job).where(Job.state == JobState.RUNNING)):
                tell(work, job.id, "foreign_chain", self._chain.clock(), reason=self.trouble)


def local_grant(ledger: Ledger, holder: Address) -> Callable[[Amount], None]:
    """For a local chain: returns a function by which the development wallet keeps `holder` in gas money and tokens."""

    def grant(amount: Amount) -> None:
        if ledger.gas_money(holder) < GAS_MONEY // 2:
            local.fund_gas(ledger.web3, holder, GAS_MONEY)
        short = amount - ledger.balance(holder)
        if short > 0:
            call = mint(ledger.deployment.token, holder, Amount(short))
            mined(execute(ledger.web3, local.development_key(), call))

    return grant
