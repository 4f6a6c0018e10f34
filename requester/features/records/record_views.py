"""Views of earnings, settlements, strikes, records and workers."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, bindparam, select

from gradmarket.market.features.records import PaymentView
from gradmarket.market.terms import ReplicaState
from gradmarket.market.views.payment_views import JobWorkerView, SettlementView, StrikesView
from gradmarket.market.views.trust_views import ReputationView
from requester.api.job_views import format_amount, format_hex, format_time
from requester.features import reputation as reputations
from requester.store import strikes
from requester.store.tables import Batch, Reputation, Strike, Transaction
from requester.store.work import RowReader


def job_worker_view(account: Row[*tuple[Any, ...]], unit: str, states: dict[str, int]) -> JobWorkerView:
    """Builds the view of a row of record_lists.select_workers."""
    return JobWorkerView(
        address=account.worker,
        payout=account.payout,
        accepted=states.get(ReplicaState.PAYABLE, 0) + states.get(ReplicaState.DIVERGED, 0),
        rejected=states.get(ReplicaState.REJECTED, 0),
        replicas=states,
        earned=format_amount(account.earned, unit),
        waiting=format_amount(account.waiting, unit),
        reserved=format_amount(account.reserved, unit),
        settled=format_amount(account.settled, unit),
        withdrawn=format_amount(account.withdrawn, unit),
        at_risk=format_amount(account.at_risk, unit),
    )


def payment_view(row: Row[*tuple[Any, ...]], unit: str, published: bool) -> PaymentView:
    """Builds the view of a row of record_lists.select_payments.

    `published`: the task's answer may be shown (store.disclosure).
    """
    return PaymentView(
        id=row.id,
        worker=row.worker,
        task=row.task_id,
        replica=row.replica_id,
        amount=format_amount(row.units, unit),
        payload_root=format_hex(row.digest) if published else None,
        batch=row.number,
        batch_state=row.batch_state,
        tx=row.tx,
        at=format_time(row.at),
        waits=row.waits,
    )


def settlement_view(batch: Batch, tx: Transaction | None, unit: str) -> SettlementView:
    return SettlementView(
        batch=batch.number,
        state=batch.state,
        tx=tx.hash if tx else None,
        gas=tx.gas if tx and tx.block is not None else None,
        block=tx.block if tx else None,
        gradients=batch.gradients,
        amount=format_amount(batch.units, unit),
    )


def list_strikes(reader: RowReader, operator: str) -> Sequence[Strike]:
    """Returns all strikes of one operator, by job."""
    return reader.session.scalars(_OF_OPERATOR, {"operator": operator}).all()


_OF_OPERATOR: Final = select(Strike).where(Strike.operator == bindparam("operator")).order_by(Strike.job_id)


def strikes_view(row: Strike, now: float) -> StrikesView:
    until = row.until if row.until > now else None
    return StrikesView(
        job=row.job_id, weight=round(strikes.compute_strike_weight(row, now), 3), suspended_until=format_time(until)
    )


def reputation_view(row: Reputation, now: float) -> ReputationView:
    return ReputationView(
        determinism_class=row.determinism_class,
        standing=reputations.compute_operator_standing(row, max(now, row.at)),
        passed=row.passed,
        failed=row.failed,
        failed_at=format_time(row.failed_at),
    )
