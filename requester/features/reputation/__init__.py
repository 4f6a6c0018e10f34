"""Reputation: the judged answers of an operator, by determinism class; other features grant trust by it.

A record changes in the transaction that judges the work. The rules are market.features.reputation and, for the records
that an answer affects, market.rules.assignment. The operators of these functions are the keys of records: addresses of
payout keys, and of wallets that are their own operators.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final

from sqlalchemy import ColumnElement, bindparam, select

from gradmarket.market.features import reputation
from gradmarket.market.features.reputation import GradientCost, PaidEvidence, TrustRecord
from gradmarket.market.rules import assignment
from gradmarket.market.rules.strikes import BARRED_S
from requester.feature import Feature
from requester.store.among import is_in_bound_list
from requester.store.jobs import find_task_costs
from requester.store.tables import Job, Replica, Reputation
from requester.store.work import RowReader, Work
from requester.store.workers import build_party


def list_reputations(reader: RowReader, operator: str) -> Sequence[Reputation]:
    """Returns the operator's records, one for each class."""
    return reader.session.scalars(_OWN, {"operator": operator}).all()


_OWN: Final = (
    select(Reputation).where(Reputation.operator == bindparam("operator")).order_by(Reputation.determinism_class)
)


def compute_operator_standing(row: Reputation, now: float, here: GradientCost = reputation.UNKNOWN) -> float:
    """Returns the operator's standing in a job whose gradients cost as `here`."""
    return reputation.compute_record_standing(_build_trust_record(row), now, here)


def load_standings(reader: RowReader, job: Job, operators: set[str], now: float) -> Mapping[tuple[str, str], float]:
    """Returns standings in the job by operator and determinism class."""
    here = compute_cost(job)
    rows = reader.session.scalars(_RECORDS, {"operators": operators}).all()
    return {
        (row.operator, row.determinism_class): compute_operator_standing(row, max(now, row.at), here) for row in rows
    }


_RECORDS: Final = select(Reputation).where(is_in_bound_list(Reputation.operator, "operators"))


Passed = tuple[str, str, GradientCost]
"""An operator with whose answer an audit agreed, the answer's determinism class, and its cost."""


def record_passed_audits(work: Work, passed: Iterable[Passed], now: float) -> None:
    """Records answers that an audit agreed with and whose payload has come, or one equal to it."""
    for operator, determinism_class, cost in sorted(passed, key=itemgetter(0, 1)):
        row = _lock_or_create_record(work, operator, determinism_class, now)
        _apply_rule(row, partial(reputation.apply_passed_audit, cost=cost), now)
        row.passed += 1


def record_outvoted_ballots(work: Work, operators: Iterable[str], determinism_class: str, now: float) -> None:
    """Records that a quorum rejected their ballots; an operator without a record has nothing to lose."""
    keys = set(operators)
    for row in _lock_records(work, Reputation.operator.in_(keys), determinism_class) if keys else ():
        _apply_rule(row, reputation.apply_outvoted_ballot, now)


def record_left_places(work: Work, left: Iterable[tuple[str, str]], now: float) -> None:
    """Records places that operators, given with the places' classes, left unanswered in a row."""
    for operator, determinism_class in sorted(left):
        for row in _lock_records(work, Reputation.operator == operator, determinism_class):
            _apply_rule(row, reputation.apply_left_place, now)


def record_lone_error(work: Work, operators: Iterable[str], determinism_class: str, now: float) -> None:
    """Records an unpaid wrong answer that nobody else gave: the evidence of the class is lost, and nobody is barred."""
    keys = set(operators)
    for row in _lock_records(work, Reputation.operator.in_(keys), determinism_class) if keys else ():
        _apply_rule(row, reputation.apply_lone_error, now)


def record_failed_audit(work: Work, operators: Iterable[str], determinism_class: str, now: float) -> None:
    """Records that an audit found their work wrong; their evidence in every class is lost."""
    for operator in sorted(set(operators)):
        _lock_or_create_record(work, operator, determinism_class, now).failed += 1
        rows = _lock_records(work, Reputation.operator == operator)
        at = max([now, *(row.at for row in rows)])
        for row, after in zip(rows, reputation.apply_failed_audit(map(_build_trust_record, rows), at), strict=True):
            _store_record(row, after)
            row.failed_at = now


def copy_bar_to_wallet(work: Work, wallet: str, operator: str, now: float) -> None:
    """Copies the operator's bar, if it has one, to the wallet that leaves it."""
    # of each key the newest failure that still bars it
    barring = (
        _lock_records(work, (Reputation.operator == key) & (Reputation.failed_at > now - BARRED_S))
        for key in (wallet, operator)
    )
    own, operators = (max(rows, key=lambda row: row.failed_at or 0.0, default=None) for rows in barring)
    if operators is None:
        return
    row = own or _lock_or_create_record(work, wallet, operators.determinism_class, now)
    row.failed_at = reputation.after_leaving(row.failed_at, operators.failed_at)


def _apply_rule(row: Reputation, rule: Callable[[TrustRecord, float], TrustRecord], now: float) -> None:
    _store_record(row, rule(_build_trust_record(row), max(now, row.at)))


def _build_trust_record(row: Reputation) -> TrustRecord:
    payers = {payer: PaidEvidence(*given) for payer, given in (row.payers or {}).items()}
    return TrustRecord(row.evidence, row.at, row.paid, row.computed, payers)


def _store_record(row: Reputation, after: TrustRecord) -> None:
    row.evidence, row.at, row.paid, row.computed = after.evidence, after.at, after.paid, after.computed
    row.payers = {payer: list(given) for payer, given in after.payers.items()}


def _lock_or_create_record(work: Work, operator: str, determinism_class: str, now: float) -> Reputation:
    """Returns the record, locked for this transaction; creates it where it is missing."""
    rows = _lock_records(work, Reputation.operator == operator, determinism_class)
    if rows:
        return rows[0]
    row = Reputation(
        operator=operator,
        determinism_class=determinism_class,
        evidence=0.0,
        paid=0.0,
        computed=0.0,
        at=now,
        passed=0,
        failed=0,
        failed_at=None,
    )
    work.add(row)
    work.flush()
    return row


def _lock_records(work: Work, where: ColumnElement[bool], determinism_class: str | None = None) -> Sequence[Reputation]:
    rows = select(Reputation).where(where).order_by(Reputation.operator, Reputation.determinism_class)
    if determinism_class is not None:
        rows = rows.where(Reputation.determinism_class == determinism_class)
    return work.session.scalars(rows.with_for_update().execution_options(populate_existing=True)).all()


def compute_cost(job: Job, price: int | None = None) -> GradientCost:
    """Returns the cost of a gradient of the job now, or of one at this price: its pay, its operations and its payer."""
    operations, _bytes = find_task_costs(job) or (0, 0)
    paid = float((job.price if price is None else price) * int(job.unit))
    return GradientCost(paid, float(operations), job.token)


class ReputationFeature(Feature):
    name = "reputation"

    def ballots_refuted(self, work: Work, replicas: Sequence[Replica], now: float) -> None:
        for name in sorted({replica.determinism_class for replica in replicas}):
            parties = [build_party(replica) for replica in replicas if replica.determinism_class == name]
            record_outvoted_ballots(work, assignment.list_answerable_keys(parties), name, now)

    def places_left(self, work: Work, left: Iterable[tuple[str, str]], now: float) -> None:
        record_left_places(work, left, now)

    def operator_left(self, work: Work, worker: str, operator: str, now: float) -> None:
        copy_bar_to_wallet(work, worker, operator, now)
