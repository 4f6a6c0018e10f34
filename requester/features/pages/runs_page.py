"""The contents of the page of several runs: one line of loss for each, and the fields in which they differ."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from pydantic import Field, field_validator

from gradmarket.market.admissible import list_differences
from gradmarket.market.fields import TAG_OR_NONE, DeferredModel
from gradmarket.market.money import TokenUnit
from gradmarket.market.rules.metric_names import choose_metric
from requester.context import Context
from requester.features.pages import overview
from requester.store import jobs
from requester.store.tables import Job
from requester.store.work import RowReader

MOST: Final = 40
"""Runs of a tag beside each other."""
MOST_NAMED: Final = 20
"""Runs by their ids: more are left out."""
_ID: Final = re.compile(r"[0-9a-f]{16}")
CURVE_POINTS: Final = 500
AMOUNTS: Final = ("price", "budget")
ABSENT: Final = "—"
Numbers = list[float | int | None]


class RunsQuery(DeferredModel):
    """Which runs: all of a tag, or jobs by their ids."""

    tag: str = Field(default="", max_length=40, pattern=TAG_OR_NONE)
    job: list[str] = Field(default_factory=list, max_length=MOST)

    @field_validator("job")
    @classmethod
    def _split(cls, value: list[str]) -> list[str]:
        """Splits texts of several ids, too. Each id comes once, in one order, so that one set of jobs is one page."""
        named = {name for text in value for name in text.replace(",", " ").split() if _ID.fullmatch(name)}
        return sorted(named)[:MOST_NAMED]

    def link(self) -> str:
        return urlencode({"tag": self.tag} if self.tag else {"job": self.job}, doseq=True)


@dataclass(frozen=True, slots=True)
class RunLine:
    """`place`: its number among the runs, by which differences have its values."""

    place: int
    id: str
    name: str
    note: str
    state: str
    done: int
    rounds: int
    loss: float | None
    metrics: Mapping[str, float]
    best: str
    paid: str


@dataclass(frozen=True, slots=True)
class RunsPage:
    tag: str
    runs: list[RunLine]
    left_out: int
    differences: dict[str, list[str]]
    metrics: list[str]
    curve: dict[str, Numbers]


def build_runs_page(context: Context, reader: RowReader, query: RunsQuery) -> RunsPage:
    if query.tag:
        search = overview.JobSearch(tag=query.tag)
        rows, number = overview.list_jobs(reader, search, 0, MOST), overview.count_jobs(reader, search)
    else:
        rows = [job for name in dict.fromkeys(query.job) if (job := reader.get(Job, name)) is not None]
        number = len(rows)
    token = TokenUnit.of(context.chain_facts)
    specs = [jobs.load_spec(job) for job in rows]
    # of a continued job the fields that its requester named are compared, and the seed comes last
    fields = [spec.model_dump(mode="json") for spec in specs]
    for spec, own in zip(specs, fields, strict=True):
        if spec.continue_from is not None:
            own["continue_from"] = spec.continue_from.job
        own["seed"] = own.pop("seed")
    differences = list_differences(fields)
    shown = dict[str, list[str]]()
    for path, values in differences.items():
        written = [token.text(one) if path in AMOUNTS and isinstance(one, str) else one for one in values]
        shown[path] = [ABSENT if one is None else one if isinstance(one, str) else json.dumps(one) for one in written]
    closed = [[row for row in overview.list_round_figures(reader, job.id) if row.closed_at is not None] for job in rows]
    lines = [_build_line(reader, token, place, job, closed[place]) for place, job in enumerate(rows)]
    # a run's label in the chart: its differences, and its id where those do not identify it
    named = [(path.rpartition(".")[2], values) for path, values in shown.items() if path != "seed"]
    texts = [
        ", ".join(f"{name} {values[place]}" for name, values in named if values[place] != ABSENT)
        for place in range(len(rows))
    ]
    times = Counter(texts)
    # the losses by round, which a run that continues another counts on from that one's
    before = [spec.rounds_before for spec in specs]
    last = max((begins + ran[-1].number for begins, ran in zip(before, closed, strict=True) if ran), default=-1)
    numbers = range(0, last + 1, max(1, -(-(last + 1) // CURVE_POINTS)))
    curves: dict[str, Numbers] = {"round": list(numbers)}
    for text, job, begins, ran in zip(texts, rows, before, closed, strict=True):
        label = text[:40] if text and times[text] == 1 else f"{text[:30]} {job.id[:6]}".strip()
        losses = {begins + row.number: row.loss for row in ran}
        curves[f"{label} loss"] = [losses.get(number) for number in numbers]
    return RunsPage(
        tag=query.tag,
        runs=lines,
        left_out=number - len(rows),
        differences=shown,
        metrics=sorted({name for line in lines for name in line.metrics}),
        curve=curves,
    )


def _build_line(reader: RowReader, token: TokenUnit, place: int, job: Job, closed: Sequence[Any]) -> RunLine:
    newest = closed[-1] if closed else None
    best = next((row for row in closed if row.number == job.best_round), None)
    measured: Mapping[str, float] = next((row.metrics for row in reversed(closed) if row.metrics), {})
    spec, checkpoint = jobs.load_spec(job), ABSENT
    if best is not None and spec.evaluation is not None:
        metric = choose_metric(spec.evaluation.metric, [best.metrics])
        checkpoint = f"{metric} {best.metrics[metric]:.4g} after round {best.number}"
    return RunLine(
        place=place,
        id=job.id,
        name=spec.name,
        note=job.note,
        state=job.state,
        done=newest.number + 1 if newest else 0,
        rounds=spec.rounds,
        loss=newest.loss if newest else None,
        metrics=measured,
        best=checkpoint,
        paid=token.text(jobs.sum_earned_units(reader, job.id) * int(job.unit)),
    )
