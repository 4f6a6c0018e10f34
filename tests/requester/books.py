"""Invariants that hold after every step of any party."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gradmarket.market import signing
from gradmarket.market.messages import Voucher
from gradmarket.market.rules import lifecycle
from gradmarket.market.rules.replication import BEST, lies_between
from gradmarket.market.terms import Address, AuditState, Digest, ReplicaState, TaskState, Units
from gradmarket.market.wire.poll import hash_of
from requester.store import jobs
from requester.store.review import REFERRED
from requester.store.tables import Account, Earned, Replica, Task, Wave
from tests.requester.market_fixture import MarketFixture, find_row_class

PAYS = (TaskState.ACCEPTED, TaskState.DIVERGED, TaskState.FINAL, TaskState.REVOKED)


def check_books(market: MarketFixture) -> None:
    every = market.all(Earned)
    earned = [row for row in every if not row.by_worth]
    replicas: dict[str, Replica] = {replica.id: replica for replica in market.all(Replica)}
    assert len({row.replica_id for row in earned}) == len(earned)
    paid = {replica.id for replica in replicas.values() if replica.state in lifecycle.PAID}
    assert paid == {row.replica_id for row in earned}
    tasks: dict[str, Task] = {task.id: task for task in market.all(Task)}
    for row in earned:
        _earned_by_a_majority(market, row, tasks[row.task_id], list(replicas.values()))
    later = market.the_job().spec["price"]
    over = [row for row in every if row.by_worth]
    assert len({row.replica_id for row in over}) == len(over)
    assert all(row.units <= int(later["ceiling"]) - int(later["floor"]) for row in over)
    assert {row.replica_id for row in over} <= paid
    _accounts_agree(market, every)


def _earned_by_a_majority(market: MarketFixture, row: Earned, task: Task, replicas: list[Replica]) -> None:
    committed = [replica for replica in replicas if replica.task_id == task.id and replica.committed_at is not None]
    agreeing = [r for r in committed if _agreed(task, r)]
    plan = task.plan
    assert task.state in PAYS
    assert row.units == task.offer.price
    assert row.revoked <= (task.state == TaskState.REVOKED or row.waits)
    if vindicated(market, row, task):
        return
    assert (row.replica_id, row.digest) in {(r.id, hash_of(Digest(r.root or ""))) for r in agreeing}
    found = [audit for audit in list_audits(market, task) if audit.reason == REFERRED]
    if found:  # before the acceptance
        assert plan.referred
        assert [audit.root for audit in found] == [replica.root for replica in agreeing][:1]
        assert len({replica.root for replica in agreeing}) == 1
    elif task.id in {told["task"] for told in market.events("disputed")}:  # a referee heard the answers
        assert len({replica.root for replica in agreeing}) == 1
    else:
        assert 2 * len(agreeing) > len(committed)
        assert len(agreeing) >= plan.quorum
    assert len(committed) <= plan.maximum
    spec = jobs.load_spec(market.the_job())
    assert plan in (*spec.unaudited_plans, *spec.relieved_plans) or lies_between(plan, spec.plan(), spec.plan(BEST))
    assert len({replica.payout for replica in agreeing}) == len(agreeing)
    closed = {wave.number: wave.closed_at for wave in market.all(Wave, Wave.task_id == task.id)}
    assert all((replica.committed_at or 0) <= closed[replica.wave] for replica in agreeing)


def list_audits(market: MarketFixture, task: Task) -> Sequence[Any]:
    audit = find_row_class("audits")
    return () if audit is None else market.all(audit, audit.task_id == task.id)


def _agreed(task: Task, replica: Replica) -> bool:
    """Where sketches were compared each has a verdict over its own root."""
    if task.allowed is not None:
        return replica.verdict_root == replica.root
    return replica.root == task.root and replica.state != ReplicaState.REJECTED


def vindicated(market: MarketFixture, row: Earned, task: Task) -> bool:
    """Returns whether it was paid by an audit's result, against its own quorum."""
    (replica,) = market.all(Replica, Replica.id == row.replica_id)
    found = [audit.root for audit in list_audits(market, task) if audit.state == AuditState.FAILED]
    return replica.root in found and replica.root != task.root and row.digest == bytes.fromhex(replica.root[7:])


def _accounts_agree(market: MarketFixture, earned: list[Earned]) -> None:  # type: ignore[type-arg,unused-ignore]
    sums = Counter[str]()
    for row in earned:
        sums[row.worker] += row.units * (not (row.waits and row.revoked))
    for account in market.all(Account):
        assert account.earned == sums[account.worker]
        assert account.earned <= account.reserved
        assert account.waiting == sum(
            row.units for row in earned if row.worker == account.worker and row.waits and not row.revoked
        )
        if account.promised:
            struct = Voucher(market.the_job().chain_job or 0, Address(account.worker), Units(account.promised))
            signer = signing.address_of(market.signer)
            signing.check_struct_signature(market.context.domain, struct, account.voucher_signature or b"", signer)
