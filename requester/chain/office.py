"""All chain work of the service, one step at a time: `step` may be called at any moment, and killed at any moment."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sqlalchemy import select

from gradmarket.contracts import local
from gradmarket.contracts.calls import mint
from gradmarket.contracts.errors import ChainUnreachable, ForeignChain, NodeRefused
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.transactions import execute, mined
from gradmarket.market.terms import Address, Amount, JobState, Units
from gradmarket.requester.chain import duty, funding, mirror, outbox, owner, reconcile, reservations, sender
from gradmarket.requester.chain.desk import Desk
from gradmarket.requester.store.events import tell
from gradmarket.requester.store.tables import Job

NOTHING: Final = Units(0)
GAS_MONEY: Final = 10**19
"""Wei that a sender keeps on a local chain."""


class Office:
    """`trouble` says in words why no chain work is done; empty where it is. A foreign chain stops it for good."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._connected = False
        self._looked: int | None = None
        self.trouble = ""

    def step(self) -> bool:
        """Everything that can be done now; whether anything moved, so that another step may find more."""
        if not duty.hold(self._desk):
            return False
        try:
            self._connect()
            moved = self._work()
            self.trouble = sender.refused(self._desk)
            return moved
        except ChainUnreachable as error:
            self._connected, self.trouble = False, str(error)
        except NodeRefused as error:
            self.trouble = str(error)
        except ForeignChain as error:
            self._foreign(error)
        return False

    def to_sign(self, job: Job, added: Units = NOTHING) -> list[owner.ToSign]:
        """What the funds' owner is to sign now for the job, if its budget grows by `added`."""
        desk = self._desk
        if desk.owner is None:
            return []
        return owner.to_sign(desk, job, replace(funding.terms(desk, job), amount=Units(job.budget + added)), added)

    def leave(self) -> None:
        """At an orderly end: the next process takes over at once."""
        duty.leave(self._desk)

    def _connect(self) -> None:
        """Verifies that this is the chain of the books: all of it after a gap, its instance at every step."""
        if self._connected:
            self._desk.ledger.verify_instance()
            return
        self._desk.ledger.verify()
        reconcile.everything(self._desk)
        self._connected = True

    def _work(self) -> bool:
        desk = self._desk
        moved = reconcile.rewound(desk)
        moved |= self._follow()
        for part in (
            funding.open_jobs,
            funding.top_up_jobs,
            reservations.step,
            outbox.step,
            funding.close_jobs,
            sender.push,
        ):
            moved |= part(desk)
        return self._follow() or self._watch() or moved

    def _follow(self) -> bool:
        touched = sender.follow(self._desk)
        for job_id in touched - {""}:
            mirror.job(self._desk, job_id)
        return bool(touched)

    def _watch(self) -> bool:
        """What workers did on-chain since the last look."""
        last = self._desk.ledger.block().number
        first, self._looked = (last if self._looked is None else self._looked) + 1, last
        return first <= last and mirror.changed(self._desk, first, last)

    def _foreign(self, error: ForeignChain) -> None:
        self._connected = False
        if self.trouble == str(error):
            return
        self.trouble = str(error)
        with self._desk.begin() as session:
            for job in session.scalars(select(Job).where(Job.state == JobState.RUNNING)):
                tell(session, job.id, "foreign_chain", self._desk.clock(), reason=self.trouble)


def local_grant(ledger: Ledger, holder: Address) -> Callable[[Amount], None]:
    """For a Desk on a local chain: its development wallet keeps `holder` in gas money and in tokens."""

    def grant(amount: Amount) -> None:
        if ledger.gas_money(holder) < GAS_MONEY // 2:
            local.fund_gas(ledger.web3, holder, GAS_MONEY)
        short = amount - ledger.balance(holder)
        if short > 0:
            call = mint(ledger.deployment.token, holder, Amount(short))
            mined(execute(ledger.web3, local.DEVELOPMENT_KEYS[0], call))

    return grant
