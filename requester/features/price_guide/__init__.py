"""Price guidance: the pay of other jobs for a GFLOP, and the lowest pay that each worker accepted.

The rule is gradmarket.price_guide.
"""

from typing import Final

from fastapi import APIRouter
from sqlalchemy import exists, func, select

from gradmarket.market.job import JobSpec
from gradmarket.market.rules.classes import SEEN_S
from gradmarket.market.terms import Amount
from gradmarket.market.views.service_views import PriceGuide
from gradmarket.price_guide import DAYS, compute_gflop_price
from requester.api.auth_routes import ROLE, Here, Submitter
from requester.feature import Feature
from requester.store import jobs
from requester.store.tables import Account, Job, Worker
from requester.store.work import RowReader

MOST: Final = 200
"""Newest jobs that are read."""
MOST_CLASSES: Final = 100
"""The commonest classes of workers, which name their own."""


def load_price_guide(reader: RowReader, now: float) -> PriceGuide:
    """Loads the guide. Pay by worth and earlier prices of a price rule are not in it: a job's newest price counts."""
    paid = exists().where(Account.job_id == Job.id, Account.earned > 0)
    recent = select(Job).where(Job.created_at > now - DAYS * 86_400, Job.spec_digest.is_not(None), paid)
    rows = reader.session.scalars(recent.order_by(Job.created_at.desc(), Job.id).limit(MOST)).all()
    prices = {job.id: compute_gflop_price(Amount(job.price * int(job.unit)), _find_operations(job)) for job in rows}
    least: dict[str, Amount] = {}
    earned = select(Account.job_id, Account.worker).where(Account.job_id.in_(prices), Account.earned > 0)
    for job_id, worker in reader.session.execute(earned):
        least[worker] = min(prices[job_id], least.get(worker, prices[job_id]))
    # how many workers of each of the commonest classes were seen lately
    there = Worker.seen_at > now - SEEN_S, Worker.determinism_class != ""
    counted = select(Worker.determinism_class, func.count()).where(*there).group_by(Worker.determinism_class)
    commonest = counted.order_by(func.count().desc(), Worker.determinism_class).limit(MOST_CLASSES)
    classes = dict(sorted((name, count) for name, count in reader.session.execute(commonest)))
    return PriceGuide(paid=list(prices.values()), taken=sorted(least.values()), classes=classes)


def _find_operations(job: Job) -> int:
    operations, _bytes = jobs.find_task_costs(job) or (1, 0)
    return operations


def find_known_operations(reader: RowReader, spec: JobSpec) -> int | None:
    """Returns the operations of a task of this job, where a job of the same model, data and step was published here."""
    wanted = spec.model_dump(mode="json")
    recent = select(Job).where(Job.spec_digest.is_not(None)).order_by(Job.created_at.desc(), Job.id).limit(MOST)
    for job in reader.session.scalars(recent):
        if all(job.spec.get(name) == wanted[name] for name in ("model", "data", "step")):
            return _find_operations(job)
    return None


router = APIRouter(prefix="/v1", tags=["jobs"])


@router.get(
    "/prices", operation_id="get_prices", responses=ROLE, summary="Prices of jobs a GFLOP, and those that workers took"
)
def prices(context: Here, _who: Submitter) -> PriceGuide:
    with context.reading() as reader:
        return load_price_guide(reader, context.clock())


class PriceGuideFeature(Feature):
    name = "price_guide"
    routers = (router,)
