"""Metrics of all held-out rows, measured by the service's runner: refused when posted, or measured in every round."""

import json
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from torch import nn

from gradmarket.data.pack import Cut, pack_dataset
from gradmarket.market.job import Publication
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.terms import JobState, RoundState
from gradmarket.runner import ready_metrics as metrics
from graphdoc import tensors
from graphdoc.document.schema import parse_document
from graphdoc.encoding import canonical
from graphdoc.export import export_module
from graphdoc.figures import Published
from requester.features import evaluations
from requester.features.evaluations import evaluate_if_due
from requester.features.evaluations.evaluator import Evaluator
from requester.stages import publish
from requester.store import jobs
from requester.store.tables import Job, Round
from tests.lanes import FULL
from tests.requester.test_evaluation_bounds import NEW

NewMarket = Callable[..., Any]


def rows(labels: int) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(64, 3)).astype(np.float32)
    return {"x": x, "y": (x.sum(1) > 0).astype(np.int64) * (labels - 1)}


@cache
def made() -> Published:
    compute = partial(metrics.compute_metrics, metrics.load_metrics(["auc"]))
    return export_module(nn.Linear(3, 2), nn.functional.cross_entropy, rows(2), metrics=compute)


def drafted(market: Any, labels: int = 2, measured: bool = True, **fields: Any) -> Any:
    """A job of an uploaded classifier with a metrics document, published; returns its row."""
    blobs = market.context.blobs
    packed = pack_dataset(rows(labels), Cut(rows=32, held_out=0.5))
    for data in (*packed.files.values(), packed.body):
        blobs.put(data)
    parts = {"document": made().document, "evaluation": made().evaluation}
    parts |= {"metrics": made().metrics} if measured else {}
    parts |= {name: fields.pop(name) for name in ("evaluation", "metrics") if isinstance(fields.get(name), bytes)}
    model = {name: blobs.put(data) for name, data in parts.items()}
    model |= {"parameters": blobs.put(tensors.pack_tensors(made().parameters))}
    fields = {"evaluation": {"partition": "test", "metrics": ["auc"]}, "step": {"rows": 4}} | fields
    return posted(market, market._spec(model=model, data={"manifest": packed.digest}, **fields))


def posted(market: Any, spec: Any) -> Any:
    named = {"reason": "", "unit": "1", "price": 10, "budget": 10**9, "token": "requester", "secret": bytes(32)}
    with market.context.begin() as work:
        work.add(Job(id=NEW, state=JobState.DRAFT, spec=spec, created_at=0.0, compute_seconds=0.0, **named))
    publish.run(market.context, NEW)
    return market.all(Job, Job.id == NEW)[0]


@FULL
def test_an_uploaded_metrics_document_is_run_beside_the_evaluation(new_market: NewMarket) -> None:
    market = new_market()
    job = drafted(market, stop=["auc > 0.99"])
    assert (job.state, job.reason) == (JobState.AWAITING_FUNDS, "waits for its deposit on-chain")
    with market.context.reading() as reader:
        publication = Publication.model_validate(reader.get_one(Job, NEW).publication)
    blobs = market.context.blobs
    manifest = parse_manifest(blobs.read(publication.manifest))
    state = {"weight": np.array([[-1.0] * 3, [1.0] * 3], np.float32), "bias": np.zeros(2, np.float32)}
    evaluator = market.context.modelling.find_part(Evaluator)
    figures = evaluator.evaluate(blobs, publication, state, manifest, manifest.named("test"))
    assert figures["auc"] == figures["accuracy"] == 1.0
    assert figures["loss"] < 0.5


@FULL
def test_a_diverged_model_has_no_figures(new_market: NewMarket) -> None:
    """JSON has no NaN, so a round with one never closed on PostgreSQL; and the first class has the highest of NaN."""
    market = new_market()
    drafted(market)
    with market.context.reading() as reader:
        publication = Publication.model_validate(reader.get_one(Job, NEW).publication)

    def figures(weight: float) -> dict[str, float]:
        state = {"weight": np.full((2, 3), weight, np.float32), "bias": np.full(2, -weight, np.float32)}
        found, why = evaluate_if_due(market.context, publication.spec, 0, publication, lambda: state)
        assert why == ""
        return found

    assert figures(3e38) == {}
    assert set(figures(1.0)) == {"accuracy", "auc", "loss"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"measured": False},
            "evaluation.metrics: nothing measures 'auc'; measured are loss, accuracy; name the document",
        ),
        ({"stop": ["f1 > 0.9"]}, "stop.0.metric: nothing measures 'f1'; measured are loss, accuracy, auc"),
        ({"stop": ["acu stalls 3"]}, "stop.0.metric: nothing measures 'acu'; measured .*; ready-made are accuracy"),
        (
            {"evaluation": {"partition": "test", "metric": "zzz"}, "measured": False},
            "evaluation.metric: nothing measures 'zzz'; measured are loss, accuracy; ready-made are accuracy",
        ),
        ({"labels": 1}, "evaluation.metrics: auc is not defined on the rows of test: do they have every class"),
    ],
)
def test_a_metric_that_would_never_come_is_refused_before_any_money(
    new_market: NewMarket, fields: dict[str, Any], why: str
) -> None:
    job = drafted(new_market(), **fields)
    assert job.state == JobState.FAILED
    assert re.search(why, job.reason), job.reason


def test_metrics_that_would_hold_up_other_jobs_are_refused_and_hold_up_none(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheating requester: every evaluation of the service waits while one is measured."""
    monkeypatch.setattr(evaluations, "FIRST_METRICS_S", 1e-6)
    market = new_market()
    job = drafted(market)
    assert job.state == JobState.FAILED
    assert "measuring them on 32 rows takes more than 1e-06 s here: hold out fewer rows" in job.reason
    monkeypatch.undo()
    with market.context.begin() as work:
        work.get_one(Job, NEW).state = JobState.DRAFT
    publish.run(market.context, NEW)
    assert market.all(Job, Job.id == NEW)[0].state == JobState.AWAITING_FUNDS, "a new child measures the next"


@pytest.mark.parametrize("part", ["evaluation", "metrics"])
def test_no_metric_takes_the_place_of_the_held_out_loss(new_market: NewMarket, part: str) -> None:
    """The cheating requester: worth is paid by the loss, so a figure of another meaning would pay less."""
    document = json.loads(getattr(made(), part))
    document["metrics"]["loss"] = next(iter(document["metrics"].values()))
    job = drafted(new_market(), **{part: canonical(document)})
    assert job.state == JobState.FAILED
    assert job.reason.endswith("loss is not the name of a tensor; rename it")


def of_a_job_file(market: Any, *asked: str) -> Any:
    """A draft of a ready architecture, published; returns its row."""
    packed = pack_dataset(rows(2), Cut(rows=32, held_out=0.5))
    for data in (*packed.files.values(), packed.body):
        market.context.blobs.put(data)
    fields = {"model": {"architecture": "mlp"}, "data": {"manifest": packed.digest}, "step": {"rows": 4}}
    return posted(market, market._spec(**fields, evaluation={"partition": "test", "metrics": list(asked)}))


@FULL
def test_a_ready_architecture_measures_ready_metrics_of_a_job_file(new_market: NewMarket) -> None:
    market = new_market()
    job = of_a_job_file(market, "auc", "f1")
    assert job.state == JobState.AWAITING_FUNDS, job.reason
    with market.context.reading() as reader:
        publication = reader.get_one(Job, NEW).publication
    assert set(parse_document(market.context.blobs.read(publication["metrics"])).metrics) == {"auc", "f1"}


def test_a_ready_metric_that_there_is_not_is_refused(new_market: NewMarket) -> None:
    job = of_a_job_file(new_market(), "auc", "acu")
    assert job.state == JobState.FAILED
    assert "evaluation.metrics: there is no metric 'acu': choose one of accuracy, auc" in job.reason


def test_a_publication_without_metrics_has_the_digest_that_it_had(new_market: NewMarket) -> None:
    market = new_market()
    job = drafted(market, measured=False, evaluation={"partition": "test"})
    assert job.state == JobState.AWAITING_FUNDS
    with market.context.reading() as reader:
        publication = reader.get_one(Job, NEW).publication
    assert "metrics" not in publication
    assert "metrics" not in publication["spec"]["evaluation"]
    assert "metrics" not in publication["spec"]["model"]


@pytest.mark.parametrize(("every", "patience"), [(3, 2), (1, 3)])
def test_patience_reads_the_rounds_that_were_measured(new_market: NewMarket, every: int, patience: int) -> None:
    """Round 1 has no figures: every third is evaluated, or the model diverged in it, which counts."""
    named = {"partition": "test", "every": every}
    market = new_market(evaluation=named, stop=[f"loss stalls {patience}"], rounds=100)
    measured = [{"loss": 1.0}, {}, {"loss": 1.1}, {"loss": 0.2}, {"loss": 1.2}]
    states = [RoundState.CLOSED] * 3 + [RoundState.REWOUND, RoundState.CLOSED]
    with market.context.begin() as work:
        for row in work.session.query(Round):
            work.session.delete(row)
        work.session.flush()
        for number, (figures, state) in enumerate(zip(measured, states, strict=True)):
            named = {"job_id": market.job, "number": number, "state": state, "metrics": figures}
            work.add(Round(**named, opened_at=0.0, parameters="", price=10, optimizer_state=""))
        work.session.flush()
        job, rounds = work.get_one(Job, market.job), [work.get_one(Round, (market.job, at)) for at in (2, 4)]
        assert [jobs.stop_reason(work, job, row) for row in rounds] == [
            "",
            f"loss has not improved on 1 in {patience} evaluations",
        ]
