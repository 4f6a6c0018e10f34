"""A job whose failed audits accuse, on a chain of its own, with one worker and the one validator that rules."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from eth_keys.datatypes import PrivateKey
from sqlalchemy import select

from contracts import calls
from contracts.ledger import Ledger
from contracts.rpc import call_json_rpc
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import AccusationState, Address, Amount, Digest, Hash
from requester.features.audits.audit_tables import Audit
from requester.features.stakes import StakesFeature
from requester.features.stakes.accusations import Accusation
from requester.features.vesting import VestingFeature
from requester.store.tables import Job, Replica, Task, Transaction
from tests.chain.chain_fixture import ChainFixture
from tests.kit.contract_calls import to_burn
from tests.onchain import NewKey, with_money

BOND = 5
WRONG, RIGHT = Digest("blake3:" + "aa" * 32), Digest("blake3:" + "bb" * 32)


@dataclass
class Court:
    chain_fixture: ChainFixture
    job: str
    worker: PrivateKey
    judge: PrivateKey

    @classmethod
    def opened(cls, ledger: Ledger, new_till: Any, new_key: NewKey, field: str, terms: Mapping[str, object]) -> Self:
        """Opens a job with these terms in the field of its spec, and a validator of its own."""
        chain_fixture, judge = new_till(on=ledger), new_key()
        named = {**terms, "validators": [address_of(judge)], "bond": str(BOND)}
        job = chain_fixture.new_job(audit={"probability": 1.0}, **{field: named})
        chain_fixture.settle_down()
        return cls(chain_fixture, job, new_key(), judge)

    @property
    def ledger(self) -> Ledger:
        return self.chain_fixture.ledger

    @property
    def market(self) -> Address:
        return self.chain_fixture.chain.market

    @property
    def chain_job(self) -> int:
        return self.chain_fixture.job(self.job).chain_job or 0

    @property
    def burnt(self) -> int:
        return to_burn(self.ledger)

    @property
    def state(self) -> AccusationState:
        return AccusationState(self.accusation().state)

    def send(self, key: PrivateKey, call: calls.Call) -> None:
        require_receipt(execute_call(self.ledger.web3, with_money(self.ledger, key), call))

    def audit_fails(self, tasks: int = 1, first: int = 0) -> None:
        """Fails the audits of `tasks` tasks from `first` on, as audits.audit does."""
        with self.chain_fixture.chain.begin() as work:
            job, now = work.get_one(Job, self.job), self.chain_fixture.clock()
            rows = select(Task).where(Task.job_id == self.job).order_by(Task.id).offset(first).limit(tasks)
            for task in work.session.scalars(rows).all():
                replica = work.session.scalars(select(Replica).where(Replica.task_id == task.id)).one()
                replica.sealed, replica.root = Hash(b"\x01" * 32), WRONG
                audit = Audit(task_id=task.id, job_id=job.id, root=RIGHT)
                for feature in (StakesFeature(), VestingFeature()):
                    feature.audit_kind.accuse_workers(work, job, task, audit, [replica], now)

    def accusation(self) -> Accusation:
        with self.chain_fixture.chain.reading() as reader:
            return reader.session.scalars(select(Accusation)).one()

    def passes(self, seconds: int) -> None:
        call_json_rpc(self.ledger.web3, "evm_increaseTime", hex(seconds))
        call_json_rpc(self.ledger.web3, "evm_mine")
        self.chain_fixture.settle_down()

    def rule(self, guilty: bool) -> None:
        case = Hash(self.accusation().case)
        ruling = Ruling(case, Amount(int(self.accusation().amount)), guilty)
        signed = sign_digest(self.judge, digest_struct(self.ledger.domain(), ruling))
        self.send(self.judge, calls.decide(self.market, case, guilty, [address_of(self.judge)], 1, [signed]))
        self.chain_fixture.settle_down()

    def sent(self, kind: str) -> list[Any]:
        return self.chain_fixture.all(Transaction, Transaction.kind == kind)
