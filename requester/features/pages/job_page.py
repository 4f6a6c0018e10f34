"""The contents of a job's page, read in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import JobState, ReplicaState
from gradmarket.market.views.job_views import CoverageCounts, PrivacyView, RowPrivacyView
from gradmarket.market.views.trust_views import TrustView
from requester.context import Context
from requester.features.pages import overview
from requester.features.pages.measured import PageMeasures
from requester.features.pages.sentences import Sentence, build_sentence
from requester.features.records.job_counts import Traffic, traffic_of
from requester.serving import build_join_command
from requester.store import jobs
from requester.store.listings import unpack_tags
from requester.store.tables import Job
from requester.store.work import RowReader

EVENTS: Final = 40
GRID_WORKERS: Final = 50
CURVE_POINTS: Final = 500
MEASURED_ROUNDS: Final = 10
"""Newest rounds whose median duration gives the time that is left."""

CELLS: Final = {
    ReplicaState.PAYABLE: "accepted",
    ReplicaState.DIVERGED: "accepted",
    ReplicaState.AGREE: "accepted",
    ReplicaState.REJECTED: "rejected",
    ReplicaState.EXPIRED: "late",
    ReplicaState.TOO_LATE: "late",
    ReplicaState.WITHHELD: "late",
    ReplicaState.ABANDONED: "late",
    ReplicaState.LEASED: "working",
    ReplicaState.COMMITTED: "working",
    ReplicaState.REVEALED: "working",
}
"""How a replica is shown in the grid; every other state as "unused"."""
MEND: Final = {
    JobState.AWAITING_FUNDS: "gradmarket job fund {id}",
    JobState.RUNNING: "{join}",
}
"""The command that most often mends a job that does not get on; a paused one has its remedy."""
HOLD: Final = "{join} --dataset FOLDER --for {id}"
"""The same command for a private job that runs: it gets on with its holders' workers alone."""


STEPS: Final = {
    JobState.DRAFT: ("cancel",),
    JobState.AWAITING_FUNDS: ("fund", "cancel"),
    JobState.RUNNING: ("pause", "fund", "cancel"),
    JobState.PAUSED: ("resume", "fund", "cancel"),
}
"""Commands that a job's state allows; none once the job is over."""
FIRST: Final = {JobState.AWAITING_FUNDS: "fund", JobState.FINISHED: "download"}
"""The command that gets a job on, where its remedy names none."""


@dataclass(frozen=True, slots=True)
class Money:
    """Amounts as people write them. `back` comes back to the requester if nothing more is earned."""

    price: str
    at_most: str
    """The highest price that worth may lead to; empty where answers are not paid by worth."""
    deposited: str
    earned: str
    reserved: str
    refunded: str
    back: str
    hourly: str
    earned_share: float
    reserved_share: float
    refunded_share: float


@dataclass(frozen=True, slots=True)
class EventLine:
    id: int
    at: float
    sentence: Sentence


@dataclass(frozen=True, slots=True)
class GridRow:
    worker: str
    cells: tuple[tuple[str, str, str], ...]
    """The outcome, its sentence and a task's id (empty where there was no task), for each round shown."""


@dataclass(frozen=True, slots=True)
class JobPage:
    job: Job
    name: str
    rounds: int
    round: int | None
    reason: str
    mend: str
    checks: str
    steps: tuple[str, ...]
    """Commands that the job's state allows now."""
    main: str
    """The command that gets it on; empty where none does."""
    money: Money
    left_s: float | None
    replicas: dict[str, int]
    traffic: Traffic
    covered: CoverageCounts | None
    trust: TrustView | None
    privacy: PrivacyView | None
    row_privacy: RowPrivacyView | None
    vest: str
    """The locked part of each worker's pay; empty where nothing is locked."""
    tags: list[str]
    note: str
    continues: str
    """The job that it continues; empty where it continues none."""
    best_round: int | None
    curve: dict[str, list[float | int | None]]
    events: list[EventLine]
    newest_event: int
    grid_rounds: range
    grid: list[GridRow]


def build_job_page(context: Context, reader: RowReader, job: Job, known: PageMeasures) -> JobPage:
    spec, standing = jobs.load_spec(job), known.standing
    rows = overview.list_round_figures(reader, job.id)
    closed = [row for row in rows if row.closed_at is not None]
    newest = rows[-1].number if rows else 0
    events = [
        EventLine(number, at, build_sentence(kind, body))
        for number, kind, body, at in overview.newest_events(reader, job.id, EVENTS)
    ]
    shown = range(max(0, newest - overview.GRID_ROUNDS + 1), newest + 1)
    # the commands that the job allows, and the one that gets it on; it is resumed only where that mends it
    state = JobState(job.state)
    mends = next((step for step in STEPS.get(state, ()) if f"job {step} " in standing.remedy), "")
    steps = [step for step in STEPS.get(state, ()) if step != "resume" or mends == "resume"]
    steps += ["download"] * (job.publication is not None) + ["best"] * (job.best_round is not None)
    mend = ""
    if job.state == JobState.PAUSED:
        mend = standing.remedy
    elif standing.reason or job.state == JobState.AWAITING_FUNDS:
        hold = spec.private is not None and job.state == JobState.RUNNING
        join = build_join_command(context.public_url, context.chain_facts)
        mend = (HOLD if hold else MEND.get(job.state, "")).format(id=job.id, join=join)
    # the seconds left, by the median duration of the newest rounds; unknown before the first has closed
    left_s: float | None = None
    if closed and job.state == JobState.RUNNING:
        took = median(row.closed_at - row.opened_at for row in closed[-MEASURED_ROUNDS:])
        left_s = took * (spec.rounds - len(closed))
    return JobPage(
        job=job,
        name=spec.name,
        rounds=spec.rounds,
        round=closed[-1].number if closed else None,
        reason=standing.reason,
        mend=mend,
        checks=standing.checks,
        steps=tuple(steps),
        main=mends or FIRST.get(state, ""),
        money=_build_money(context, reader, job, known),
        left_s=left_s,
        replicas=dict(standing.replicas),
        traffic=traffic_of(context, reader, job, known.newest, standing.replicas),
        covered=standing.parts.get("coverage"),
        trust=standing.parts.get("trust"),
        privacy=standing.parts.get("privacy"),
        row_privacy=standing.parts.get("row_privacy"),
        vest=vest.text(TokenUnit.of(context.chain_facts)) if (vest := standing.parts.get("vest")) else "",
        tags=unpack_tags(job.tags),
        note=job.note,
        continues=spec.continue_from.job if spec.continue_from else "",
        best_round=job.best_round,
        curve=_build_curve(closed),
        events=events,
        newest_event=events[0].id if events else 0,
        grid_rounds=shown,
        grid=_build_grid(overview.list_grid_replicas(reader, job.id, newest), shown),
    )


def _build_money(context: Context, reader: RowReader, job: Job, known: PageMeasures) -> Money:
    earned, pay = known.standing.earned, known.pay
    token, unit = TokenUnit.of(context.chain_facts), int(job.unit)
    reserved = overview.sum_reserved_units(reader, job.id)
    back = max(0, job.deposited - earned - reserved - job.refunded)
    return Money(
        price=token.text(job.price * unit),
        at_most=token.text(jobs.compute_reserve_per_gradient(job) * unit) if jobs.load_spec(job).price.later else "",
        deposited=token.text(job.deposited * unit),
        earned=token.text(earned * unit),
        reserved=token.text(reserved * unit),
        refunded=token.text(job.refunded * unit),
        back=token.text(back * unit),
        hourly=pay,
        earned_share=min(100.0, 100 * earned / job.deposited) if job.deposited else 0.0,
        reserved_share=min(100.0, 100 * reserved / job.deposited) if job.deposited else 0.0,
        refunded_share=min(100.0, 100 * job.refunded / job.deposited) if job.deposited else 0.0,
    )


def _build_curve(closed: Sequence[Any]) -> dict[str, list[float | int | None]]:
    """Returns the rounds and, by name, each round's measurements; at most CURVE_POINTS, evenly chosen.

    The training loss is of the round's parameters before its update, on the workers' rows; the rest of those after it.
    """
    step = max(1, -(-len(closed) // CURVE_POINTS))
    rows = [row for at, row in enumerate(closed) if (len(closed) - 1 - at) % step == 0]
    names = sorted({name for row in rows for name in row.metrics or {}})
    curve: dict[str, list[float | int | None]] = {"round": [row.number for row in rows]}
    curve["training loss"] = [row.loss for row in rows]
    return curve | {f"held-out {name}": [(row.metrics or {}).get(name) for row in rows] for name in names}


def _build_grid(replicas: Sequence[Any], shown: range) -> list[GridRow]:
    """Returns the workers with the most replicas in these rounds; of several in a round the last one read is shown."""
    by_worker: dict[str, dict[int, tuple[str, str, str]]] = {}
    for replica in replicas:
        cell = CELLS.get(replica.state, "unused")
        line = f"round {replica.round}: {replica.state}" + (f", audit {replica.audit}" if replica.audit else "")
        audited = cell if not replica.audit else f"{cell} audited"
        by_worker.setdefault(replica.worker, {}).setdefault(replica.round, (audited, line, replica.task))
    busiest = sorted(by_worker, key=lambda worker: (-len(by_worker[worker]), worker))[:GRID_WORKERS]
    empty = ("", "", "")
    return [GridRow(worker, tuple(by_worker[worker].get(at, empty) for at in shown)) for worker in busiest]
