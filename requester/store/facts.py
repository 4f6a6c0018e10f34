"""Facts about a job's document that publishing computed, stored with the job so that nothing is computed twice."""

from typing import Any, Final, Literal

from pydantic import ConfigDict

from gradmarket.market.fields import DeferredModel
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.rules import payment
from gradmarket.market.rules.pricing import Past, PricedWork
from gradmarket.market.sampling import layout_in
from gradmarket.market.terms import Amount, Digest, Units
from requester.store import jobs
from requester.store.remembered import Remembered
from requester.store.tables import Job, Round
from requester.store.work import RowReader


class EntryFacts(DeferredModel):
    name: str
    shape: tuple[int, ...]
    kind: Literal["loss", "gradient", "buffer"]


class Facts(DeferredModel):
    """`flops` and `peak_bytes`: of one task; `memory`: the blob of the optimizer's state before the first round."""

    model_config = ConfigDict(frozen=True)

    layout: tuple[EntryFacts, ...]
    counters: tuple[str, ...]
    flops: int
    peak_bytes: int
    memory: Digest
    weighed: bool = False
    """Whether the document's rows have weights."""


_FACTS: Final = Remembered[Facts]()
_LAYOUTS: Final = Remembered[Layout]()


def facts_of(job: Job) -> Facts:
    return _FACTS.get(job.spec_digest, lambda: Facts.model_validate(job.facts))


def layout_of(job: Job) -> Layout:
    return _LAYOUTS.get(
        job.spec_digest,
        lambda: layout_in(
            jobs.load_spec(job),
            Layout(
                tuple(LayoutEntry(entry.name, entry.shape, entry.kind) for entry in facts_of(job).layout),
                weighed=facts_of(job).weighed,
            ),
        ),
    )


def layout_facts(layout: Layout) -> tuple[EntryFacts, ...]:
    return tuple(EntryFacts(name=e.name, shape=e.shape, kind=e.kind) for e in layout.entries)


def as_json(facts: Facts) -> dict[str, Any]:
    return facts.model_dump(mode="json")


def price_of(reader: RowReader, job: Job, latest: Round | None) -> Units:
    """Returns the price of a gradient in a round that opens after `latest`, the newest closed one; None: the first."""
    spec, unit, past = jobs.load_spec(job), Amount(int(job.unit)), None
    if latest is not None:
        # with an overlap, the round's own time begins when the one before it is merged
        before = reader.get(Round, (job.id, latest.number - 1)) if spec.overlap > 0 else None
        began = max(latest.opened_at, before.closed_at or 0.0) if before else latest.opened_at
        past = Past(Amount(latest.price * unit), round(1000 * ((latest.closed_at or began) - began)))
    price = spec.price.of(PricedWork(facts_of(job).flops, unit), past)
    return payment.in_units("price", price, unit, payment.MAX_PRICE)
