"""The contents of the first page: the market's sums, its jobs with expected pay, and the workers that are present."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from fastapi import Request
from pydantic import Field

from gradmarket.market.fields import TAG_OR_NONE, DeferredModel
from gradmarket.market.money import TokenUnit
from gradmarket.market.printable import Printable
from requester.context import Context
from requester.features import explanations
from requester.features.pages import overview
from requester.features.pages.measured import load_page_measures
from requester.store import jobs
from requester.store.listings import unpack_tags
from requester.store.work import RowReader

JOBS: Final = 50
"""Jobs on a page."""


class JobQuery(DeferredModel):
    """The viewer's search, as in the page's address. `mine`: only the jobs posted with the viewer's API token."""

    state: Printable = Field(default="", max_length=20)
    q: Printable = Field(default="", max_length=80)
    tag: str = Field(default="", max_length=40, pattern=TAG_OR_NONE)
    mine: bool = False
    page: int = Field(default=1, ge=1, le=100_000)

    def link(self, page: int) -> str:
        """Returns the query of another page of the same jobs."""
        fields = {
            "state": self.state,
            "q": self.q,
            "tag": self.tag,
            "mine": "true" if self.mine else "",
            "page": str(page),
        }
        return urlencode({name: value for name, value in fields.items() if value})


@dataclass(frozen=True, slots=True)
class JobLine:
    """`pay`: expected pay an hour of one more worker; `loss`: after the newest closed round."""

    id: str
    name: str
    state: str
    price: str
    pay: str
    done: int
    rounds: int
    loss: float | None
    reason: str
    replicas: int
    over: bool
    tags: list[str]


@dataclass(frozen=True, slots=True)
class MarketPage:
    paid: str
    totals: overview.MarketTotals
    classes: list[tuple[str, int]]
    jobs: list[JobLine]
    trouble: str
    query: JobQuery
    number: int
    """Jobs that were found."""
    first: int
    pages: int
    nobody: bool
    """The viewer's own jobs are asked for, without the token that posted them."""


def build_market_page(
    context: Context, reader: RowReader, request: Request, query: JobQuery, token_name: str | None
) -> MarketPage:
    """Returns the page. `token_name`: of the viewer's API token; needed where `query.mine`."""
    nobody = query.mine and token_name is None
    search = overview.JobSearch(query.state, query.q.strip(), token_name if query.mine else None, query.tag.strip())
    number, first = 0 if nobody else overview.count_jobs(reader, search), JOBS * (query.page - 1)
    shown = [] if nobody else overview.list_jobs(reader, search, first, JOBS)
    known, token = load_page_measures(context, reader, request, shown), TokenUnit.of(context.chain_facts)
    totals, lines = overview.load_market_totals(reader), list[JobLine]()
    for job in shown:
        spec, newest = jobs.load_spec(job), known[job.id].newest
        line = JobLine(
            id=job.id,
            name=spec.name,
            state=job.state,
            price=token.text(job.price * int(job.unit)),
            pay=known[job.id].pay,
            done=newest.number + 1 if newest else 0,
            rounds=spec.rounds,
            loss=newest.loss if newest else None,
            reason=known[job.id].standing.reason,
            replicas=spec.replication.replicas,
            over=job.ended_at is not None,
            tags=unpack_tags(job.tags),
        )
        lines.append(line)
    return MarketPage(
        paid=token.text(totals.paid),
        totals=totals,
        classes=[(name, count) for name, count in overview.count_present_classes(reader, context.clock())],
        jobs=lines,
        trouble=explanations.chain_trouble(reader),
        query=query,
        number=number,
        first=first,
        pages=max(1, -(-number // JOBS)),
        nobody=nobody,
    )
