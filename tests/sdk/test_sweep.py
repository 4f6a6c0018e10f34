"""A grid of runs: posted from threads, watched together, compared; and grids that are none."""

import io
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from rich.console import Console
from torch import nn

from gradmarket import Market
from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.commands.following import compute_pause
from gradmarket.market.errors import Refused
from gradmarket.market.rules.stopping import StopAtMetric, find_direction
from gradmarket.market.terms import JobState
from gradmarket.sdk import sweep
from gradmarket.sdk.job_handle import TrainingJob
from gradmarket.sdk.sweep import Run, Sweep, apply_point, choose_best, list_points
from gradmarket.terminal import ShownConsole
from tests.lanes import FULL
from tests.network.servers import serving
from tests.patience import PATIENCE_S
from tests.sdk.test_train import bits, blobs, network
from tests.shown import shown_job
from tests.town import ALONE

ARGUMENTS: dict[str, Any] = {"price": "0.001 GRAD", "replication": ALONE, "rounds": 2}


@FULL
def test_a_grid_is_trained_in_parallel_and_its_runs_are_compared(market: Market) -> None:
    said = io.StringIO()
    grid = {"optimizer.lr": [1e-1, 1e-9], "seed": [3]}
    made = market.sweep(network(), nn.CrossEntropyLoss(), blobs(), grid, tags=["mine"], **ARGUMENTS)
    runs = made.watch(Console(file=said, width=200), timeout=PATIENCE_S)
    assert [(run.state, run.rounds, run.point["optimizer.lr"]) for run in runs] == [
        ("finished", 2, 1e-1),
        ("finished", 2, 1e-9),
    ]
    assert said.getvalue().count("seed=3: finished") == 2
    assert {job.id for job in market.jobs(tag=made.tag)} == {job.id for job in made.jobs}
    view = made.jobs[0].view()
    assert (set(view.tags), view.note) == ({made.tag, "mine"}, "optimizer.lr=0.1, seed=3")
    best = made.best()
    assert best.best["accuracy"] == max(run.best["accuracy"] for run in runs)
    assert made.best("loss").point["optimizer.lr"] == 1e-1
    loaded, again = network(), network()
    number = best.job.load_best_into(loaded)
    best.job.load_into(again, number)
    assert bits(loaded) == bits(again)
    listed = best.job.checkpoints()
    assert [one.parameters for one in listed] == [one.updated for one in best.job.rounds()]
    assert [one.round for one in listed if one.best] == [number]
    assert "<polyline" in made.plot().svg
    assert made._repr_html_().count("<tr>") == 3
    with pytest.raises(Refused, match="has measured nonsense"):
        made.best("nonsense")


@FULL
def test_jobs_posted_from_threads_are_those_posted_one_after_the_other(market: Market) -> None:
    def post(rate: float, model: nn.Module) -> Any:
        optimizer = {"name": "sgd", "lr": rate}
        job = market.train(model, nn.CrossEntropyLoss(), blobs(), seed=5, optimizer=optimizer, **ARGUMENTS)
        spec = job.view().model_dump(mode="json")["spec"]
        job.cancel()
        return spec

    rates = [0.1, 0.2, 0.3, 0.4]
    models = [
        network() for _ in rates
    ]  # made here: the seed and the draws of torch are of the process, not of a thread
    with ThreadPoolExecutor(4) as pool:
        posted = list(pool.map(post, rates, models))
    assert posted == [post(rate, network()) for rate in rates]


@FULL
def test_where_one_run_is_refused_none_is_left(market: Market) -> None:
    """The second has no such step, which is found before anything is posted; a budget of none is found at the post."""
    loss, data = nn.CrossEntropyLoss(), blobs()
    with pytest.raises(Refused, match="optimizer"):
        market.sweep(network(), loss, data, {"optimizer.lr": [0.1, -1.0]}, tag="first", **ARGUMENTS)
    assert list(market.jobs(tag="first")) == []
    with pytest.raises(ServiceProblem, match="pays for no round"):
        market.sweep(network(), loss, data, {"budget": ["1 GRAD", "1"]}, tag="second", at_once=1, **ARGUMENTS)
    assert {job.state for job in market.jobs(tag="second")} <= {"cancelled"}


def test_a_malformed_grid_is_refused_in_a_sentence() -> None:
    for grid, said in (
        ({}, "give a mapping of arguments"),
        ([1], "give a mapping of arguments"),
        ({"rows": 3}, r"rows needs a list of values, such as \[3\]"),
        ({"rows": "32"}, "rows needs a list of values"),
        ({"rows": []}, "rows needs a list of values"),
        ({"rows": range(300)}, "300 runs are too many"),
    ):
        with pytest.raises(Refused, match=said):
            list_points(grid)
    assert list_points({"a": [1, 2], "b": [3]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    given = {"optimizer": {"name": "adamw", "lr": 0.1}, "rows": 4}
    assert apply_point(given, {"optimizer.lr": 0.2, "step.kind": "local"}) == {
        "optimizer": {"name": "adamw", "lr": 0.2},
        "rows": 4,
        "step": {"kind": "local"},
    }
    assert given["optimizer"]["lr"] == 0.1
    with pytest.raises(Refused, match="names a part of rows"):
        apply_point(given, {"rows.count": 1})


def test_the_best_run_is_the_lower_one_of_a_metric_that_is_better_lower() -> None:
    job: Any = None
    runs = [Run({"lr": value}, job, "finished", 1, None, {}, {"rmse": value}, "") for value in (0.3, 0.1, 0.2)]
    rules = [StopAtMetric(metric="auc", at=0.9), StopAtMetric(metric="rmse", at=0.05, better="lower")]
    assert choose_best(runs, "rmse", find_direction(rules, "rmse")).best["rmse"] == 0.1
    assert choose_best(runs, "rmse", find_direction(rules[:1], "rmse")).best["rmse"] == 0.3


def test_a_run_that_cannot_be_cancelled_leaves_no_other_spending(market: Market) -> None:
    job = market.train(network(), nn.CrossEntropyLoss(), blobs(), **ARGUMENTS)
    lost = TrainingJob(job._client, "0" * 16)
    with pytest.raises(Refused, match=f"still spending: {lost.id}"):
        Sweep("tag", [{"a": 1}, {"a": 2}], [lost, job]).cancel()
    assert job.state == "cancelled"


def test_a_sweep_is_watched_on_once_the_service_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a job is: its runs go on meanwhile."""
    monkeypatch.setattr(sweep, "LOOK_S", 0.0)
    out, answers = io.StringIO(), iter([(503, b"{}")])
    seen = shown_job(state=JobState.FINISHED).model_dump_json().encode()

    zero = {"genesis": "0x" + "0" * 64, "instance": "0x" + "0" * 64, "unit": "1", "rpc": None}
    facts = zero | dict.fromkeys(("contract", "token", "signer"), "0x" + "0" * 40)
    told = json.dumps(facts | {"chain_id": 1, "symbol": "GRAD", "decimals": 18}).encode()

    def answer(_method: str, target: str, _body: bytes) -> tuple[int, bytes]:
        return (200, told) if target.endswith("/chain") else next(answers, (200, seen))

    with serving(answer) as url:
        watched = Sweep("tag", [{"a": 1}], [TrainingJob(RequesterClient(url), "0" * 16)])
        watched.watch(ShownConsole(file=out, width=200))
    assert out.getvalue().count("trying again until it is back") == 1
    assert "a=1: finished" in out.getvalue()


@pytest.mark.parametrize(("tries", "seconds"), [(1, 0.5), (2, 1.0), (7, 10.0), (5000, 10.0)])
def test_a_pause_is_a_number_after_hours_without_an_answer(tries: int, seconds: float) -> None:
    assert compute_pause(tries) == seconds
