"""Spending: a token's budget of a day. Jobs beyond it are refused; from four fifths on there is an alarm."""

from collections.abc import Iterable, Sequence

from fastapi import APIRouter, HTTPException
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from gradmarket.market.errors import NotFound
from gradmarket.market.features.spending import NewSpendingLimit
from gradmarket.market.terms import Amount, Role, Units
from gradmarket.market.views.service_views import SpendingView
from requester.api.auth_routes import ROLE, Admin, Here, Submitter
from requester.api.job_routes import amount_of
from requester.api.problems import describe_problems
from requester.context import Context
from requester.feature import Feature
from requester.features.api_tokens import NamePath
from requester.features.spending import limits
from requester.features.spending.limits import SpendingLimit
from requester.store import identities
from requester.store.locks import retry_on_conflict
from requester.store.tables import ApiToken, Job, JobEvent
from requester.store.work import RowReader, Work

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

NO_TOKEN = {**ROLE, **describe_problems(404)}


@router.put(
    "/{name}/spending",
    operation_id="limit_spending",
    responses=NO_TOKEN,
    summary="The budget of the token of this name for any 24 hours; null: any amount",
)
@retry_on_conflict
def limit(context: Here, _who: Admin, name: NamePath, asked: NewSpendingLimit) -> SpendingView:
    a_day = None if asked.a_day is None else Amount(amount_of(context, asked.a_day, "a_day"))
    with context.begin() as work:
        _check_token(work, name)
        limits.set_limit(work, name, a_day)
        return _build_view(context, work, name)


@router.get(
    "/{name}/spending",
    operation_id="get_spending",
    responses=NO_TOKEN,
    summary="A token's spending of the last 24 hours, and the rest of its budget",
)
def shown(context: Here, who: Submitter, name: NamePath) -> SpendingView:
    if who.role != Role.ADMIN and who.subject != name:
        raise HTTPException(403, "this belongs to another token: ask for your own, or use an admin's")
    with context.reading() as reader:
        _check_token(reader, name)
        return _build_view(context, reader, name)


def _check_token(reader: RowReader, name: str) -> None:
    """Raises NotFound for a name that no token ever had, and that has no limit."""
    own = identities.select_tokens().where(ApiToken.subject == name)
    if reader.get(SpendingLimit, name) is None and reader.session.scalar(own.limit(1)) is None:
        raise NotFound(f"no token {name}: gradmarket token list has them")


def _build_view(context: Context, reader: RowReader, name: str) -> SpendingView:
    row, now = reader.get(SpendingLimit, name), context.clock()
    if row is None:
        spent = sum(one.amount for one in limits.list_spent(reader, name, now))
        return SpendingView(token=name, a_day=None, spent=Amount(spent), left=None)
    room = limits.find_token_room(reader, row, Amount(0), now)
    return SpendingView(token=name, a_day=Amount(int(row.a_day)), spent=room.spent, left=room.left)


class SpendingFeature(Feature):
    name = "spending"
    needs = ("api_tokens",)
    routers = (router,)

    def budget_raised(self, context: Context, work: Work, job: Job, token: str, amount: Amount) -> None:
        limits.spend(context, work, job, token, amount)

    def events_recorded(self, work: Work, events: Sequence[JobEvent]) -> None:
        for event in events:
            if event.kind == "funded":
                limits.date_deposits(work, [event.job_id], event.at)

    def topped_up(self, work: Work, job: Job, amount: Units, at: float) -> None:
        limits.date_top_up(work, job, amount, at)

    def bound_times(self, work: Work, now: float) -> int:
        return limits.bound_times(work, now)

    def metrics(self, reader: RowReader, now: float) -> Iterable[Metric]:
        family = GaugeMetricFamily("gradmarket_spent_share", "Share of its budget of a day spent", labels=["token"])
        for row in limits.list_limits(reader):
            a_day, spent = int(row.a_day), limits.find_token_room(reader, row, Amount(0), now).spent
            family.add_metric([row.token], spent / a_day if a_day else 1.0)
        yield family
