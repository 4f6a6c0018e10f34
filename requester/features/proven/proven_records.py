"""The rule of proven workers in a job (market.features.reputation.weigh_evidence), as a condition of a query.

So workers whose records do not count in the job, however many, keep no worker that is proven there out of a sample.
"""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import (
    JSON,
    ColumnElement,
    Float,
    String,
    and_,
    bindparam,
    case,
    column,
    exists,
    func,
    not_,
    or_,
    select,
)
from sqlalchemy.orm import InstrumentedAttribute

from gradmarket.market.features import reputation
from gradmarket.market.rules.replication import proven
from requester.features import reputation as reputations
from requester.store import jobs, workers
from requester.store.among import NOW
from requester.store.tables import Job, Reputation, Worker


def bind_proof(job: Job, now: float) -> dict[str, object]:
    """Returns the parameters of PROVEN: the least evidence of a proven operator of the job, and its least cost."""
    least, here = proven.LEFT * (jobs.load_spec(job).proof or 0), reputations.compute_cost(job)
    each = least / reputation.COMPARABLE
    spent = {"least_paid": each * here.price, "least_computed": each * here.operations}
    return {"now": now, "payer": here.payer, "least": least, **spent}


_GIVEN: Final = func.json_each(Reputation.payers).table_valued(column("key", String), column("value", JSON))
"""The evidence from each requester's token."""
_EVIDENCE, _PAID, _COMPUTED = (_GIVEN.c.value[number].as_float() for number in range(3))
_AGE: Final = case((Reputation.at < NOW, NOW - Reputation.at), else_=0.0) / float(reputation.HALF_LIFE_S)
_WEIGHT: Final = func.power(0.5, _AGE, type_=Float(53))
_FORGOTTEN: Final = _EVIDENCE * _WEIGHT < reputation.FORGOTTEN
_PAYER: Final = bindparam("payer", type_=String)
_OTHERS: Final = and_(not_(_FORGOTTEN), _PAYER != "", _GIVEN.c.key != _PAYER)


def _weigh(
    all_: InstrumentedAttribute[float], given: ColumnElement[float], others: Callable[..., ColumnElement[Any]]
) -> ColumnElement[float]:
    """Returns the rest of a sum, without the forgotten part and without the sum or the largest of the others."""
    gone = func.coalesce(func.sum(case((_FORGOTTEN, given))), 0.0)
    return (all_ - gone - func.coalesce(others(case((_OTHERS, given))), 0.0)) * _WEIGHT


_OWN: Final = (1.0 + reputation.BESIDE) * _weigh(Reputation.evidence, _EVIDENCE, func.sum)
_ENOUGH: Final = [
    or_(least <= 0.0, had >= least)
    for name, all_had in (
        ("least", (_weigh(Reputation.evidence, _EVIDENCE, func.max), _OWN)),
        ("least_paid", (_weigh(Reputation.paid, _PAID, func.max),)),
        ("least_computed", (_weigh(Reputation.computed, _COMPUTED, func.max),)),
    )
    for least in [bindparam(name, type_=Float(53))]
    for had in all_had
]
PROVEN: Final = exists().where(
    Reputation.operator == Worker.operator,
    Reputation.determinism_class == workers.CLASS,
    Reputation.evidence >= bindparam("least", type_=Float(53)),
    select(and_(*_ENOUGH)).select_from(_GIVEN).correlate(Reputation).scalar_subquery(),
)
"""Condition: the worker's operator is proven in the job."""
