"""Does all chain work of the service in steps: `step` may be called at any moment, and killed at any moment."""

import threading
from dataclasses import replace
from typing import Final

import structlog
from sqlalchemy import exists, func, or_, select

from contracts.ledger import Block
from contracts.rpc import LOCAL_CHAIN_IDS
from gradmarket.market.terms import Address, JobState, TaskState, Units
from gradmarket.network.chain_errors import (
    ChainUnreachable,
    ContractRefused,
    ForeignChain,
    GasTooDear,
    LocalChainFailed,
    NodeRefused,
)
from requester.chain import funding, mirror, reservations, sender, settlement_batches
from requester.chain.chain_context import UNBATCHED, UNDER_WAY, ChainContext, ToSign, with_money
from requester.store import leader_leases, tasks
from requester.store.progress import CHAIN
from requester.store.tables import Earned, Job, Task, Transaction, Trouble
from requester.store.work import record_event

NOTHING: Final = Units(0)
LOOK_S: Final = 5.0
"""Longest time between full steps, in seconds, even where neither notifier, database nor chain reports any work."""


log = structlog.get_logger("gradmarket.parts")


class ChainWorker:
    """Runs the chain work. `trouble` is the reason why none is done, else empty. A foreign chain stops the work for
    good.

    `notified` is set when new work arrives. Without it, every moment may have work.
    """

    def __init__(self, chain: ChainContext, notified: threading.Event | None = None) -> None:
        self._chain = chain
        self._notified = notified
        self._look_at = 0.0
        self._connected = False
        self._looked: Block | None = None
        self.trouble = ""
        self._told: str | None = None
        self._retired = False

    def wanted(self) -> bool:
        """Whether a step may find work; costs one query and one call, where a step costs twenty."""
        if self._notified is None or self._notified.is_set() or self._chain.clock() >= self._look_at:
            return True
        try:
            return self._chain.ledger.height() != self._looked_number or self._has_due_work()
        except (ChainUnreachable, NodeRefused):
            return True  # the step reports it

    def _has_due_work(self) -> bool:
        """Returns whether the database has a pending transaction, a job to open or to fund, or gradients to settle.

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
        """Does all work that can be done now; returns whether anything moved, so that another step may find more."""
        if self._notified is not None:
            self._notified.clear()
        moved = self._advance_as_leader()
        self._look_at = 0.0 if moved else self._chain.clock() + LOOK_S
        return moved

    def _advance_as_leader(self) -> bool:
        if not renew_leader_lease(self._chain):
            return False
        moved = self._try_parts()
        self._store_trouble()
        return moved

    def _try_parts(self) -> bool:
        try:
            self._verify_chain()
            moved = self._run_parts()
            self.trouble = sender.find_refusal(self._chain)
            return moved
        except ChainUnreachable as error:
            self._connected, self.trouble = False, str(error)
            return self._revive_chain()
        except GasTooDear as error:
            self.trouble = error.detail
        except (NodeRefused, ContractRefused) as error:  # the latter by a node that lacks a job's opening
            self.trouble = str(error)
        except ForeignChain as error:
            self._record_foreign_chain(error)
        return False

    def retire(self) -> None:
        """Prevents restarts of the chain from now on: one that ends was stopped along with the service."""
        self._retired = True

    def _revive_chain(self) -> bool:
        """Restarts the service's own chain; returns whether it did. The next step continues from its saved state."""
        if self._retired:
            return False
        try:
            return self._chain.revive()
        except LocalChainFailed as error:
            self.trouble = str(error)
            return False

    def _store_trouble(self) -> None:
        """Stores `trouble` when it changed, so that every process can report it; only the lease holder gets here."""
        if self._told == self.trouble:
            return
        if self.trouble:
            log.error("it does not work", part=CHAIN, error=self.trouble)
        with self._chain.begin() as work:
            before = work.get(Trouble, CHAIN)
            if before is not None and before.said and not self.trouble:
                tasks.offer_declined_again(work, self._chain.clock())
            work.session.merge(Trouble(part=CHAIN, said=self.trouble))
        self._told = self.trouble

    @property
    def sender(self) -> Address:
        """Returns the address whose gas the transactions take."""
        return self._chain.sender

    def to_sign(self, job: Job, added: Units = NOTHING) -> list[ToSign]:
        """Returns the calls that the money's owner must sign now for the job, if its budget grows by `added` units."""
        chain = self._chain
        if chain.elsewhere is None:
            return []
        return chain.elsewhere.list_calls(
            chain, job, replace(funding.compute_job_terms(chain, job), amount=Units(job.budget + added)), added
        )

    def leave(self) -> None:
        """Gives up the lease at an orderly shutdown, so that the next process takes over at once."""
        release_leader_lease(self._chain)

    def _verify_chain(self) -> None:
        """Verifies that this is the database's chain: completely after a disconnect, by its instance at every step."""
        if self._connected:
            self._chain.ledger.verify_instance()
            return
        chain = self._chain
        chain.ledger.verify()
        chain.correction.mark_forgotten_transactions(chain)
        if self._looked is None:
            self._looked = chain.ledger.block()
        with chain.reading() as reader:
            ids = [job.id for job in with_money(reader)]
            newest = max(self._looked.number, reader.session.scalar(select(func.max(Transaction.block))) or 0)
        for job_id in ids:
            chain.correction.correct_batches(chain, job_id)
            mirror.copy_job_from_chain(chain, job_id, newest)
        self._connected = True

    def _run_parts(self) -> bool:
        chain = self._chain
        moved = chain.correction.mark_forgotten_transactions(chain)
        moved |= bool(sender.record_known_outcomes(chain, self._looked_number))
        dear: GasTooDear | None = None
        for part in (
            funding.open_jobs,
            reservations.post_reservations,
            settlement_batches.settle_due_batches,
            funding.close_jobs,
            *chain.steps,
            reservations.drop_late,
            sender.send_pending_transactions,
        ):
            try:
                moved |= part(chain)
            except GasTooDear as error:
                dear = error  # transactions sent already go on
        moved = bool(sender.record_known_outcomes(chain, self._looked_number)) or self._copy_worker_changes() or moved
        if dear is not None:
            raise dear
        return moved

    @property
    def _looked_number(self) -> int:
        return 0 if self._looked is None else self._looked.number

    def _copy_worker_changes(self) -> bool:
        """Copies the changes that workers made on-chain since the last look; returns whether anything was copied.

        Where a re-org replaced the block of that look, the next step copies everything, as after a disconnect.
        """
        ledger = self._chain.ledger
        newest = ledger.block()
        looked = self._looked or newest
        there = newest.hash if newest.number == looked.number else ledger.block_hash(looked.number)
        if there is None and ledger.deployment.chain_id not in LOCAL_CHAIN_IDS:
            return False  # one of several nodes, which lacks the block
        if there != looked.hash:
            self._connected, self._looked = False, newest
            return True
        last = max(newest, looked, key=lambda block: block.number)
        copied = (last != looked or bool(self._chain.strangers)) and mirror.copy_changed_accounts(
            self._chain, looked.number + 1, last.number
        )
        self._looked = last
        return copied

    def _record_foreign_chain(self, error: ForeignChain) -> None:
        self._connected = False
        if self.trouble == str(error):
            return
        self.trouble = str(error)
        with self._chain.begin() as work:
            for job in work.session.scalars(select(Job).where(Job.state == JobState.RUNNING)):
                record_event(work, job.id, "foreign_chain", self._chain.clock(), reason=self.trouble)


# A lease on sending: of all processes that share the database, one at a time does the chain work. Safety does not
# depend on it, since the tables' unique keys allow each nonce and batch number only once: it spares work in vain.


def renew_leader_lease(chain: ChainContext) -> bool:
    """Takes or renews the lease for the chain's sender; returns False while another process has it."""
    name = f"chain:{chain.sender}"
    return leader_leases.renew_lease(chain.begin, chain.reading, name, chain.holder, chain.clock(), chain.policy.duty_s)


def release_leader_lease(chain: ChainContext) -> None:
    """Releases the lease, so that the next process need not wait."""
    leader_leases.release_lease(chain.begin, f"chain:{chain.sender}", chain.holder)
