"""Callbacks that record a job's rounds elsewhere: each with its own library, over one job that really ran."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from torch import nn

from gradmarket import Market, TrainingJob, callbacks
from gradmarket.callbacks import TensorBoard
from gradmarket.market.errors import Refused
from gradmarket.market.views.job_views import JobView
from gradmarket.sdk.curve import draw_loss_curve
from tests.kit.late_module import LateModule
from tests.lanes import FULL, leave_to_full
from tests.patience import wait_until
from tests.sdk.test_train import QUIET, blobs, network
from tests.town import ALONE

event_accumulator: Any = LateModule("tensorboard.backend.event_processing.event_accumulator")
ROUNDS = 3
BLOCK, HEADER = 1 << 15, 7
"""Bytes of a block of an offline run's log, and of the header before the rest of a split record."""
FIGURES = {"loss", "held_out/loss", "held_out/accuracy"}


@pytest.fixture(scope="module")
def job(market: Market) -> TrainingJob:
    made = market.train(network(), nn.CrossEntropyLoss(), blobs(), rows=100, rounds=ROUNDS, price="0.01 GRAD",
                        held_out=0.2, replication=ALONE)  # fmt: skip
    made.watch(QUIET)
    return made


class Remembered:
    """A callback's calls, in order."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.told: list[Any] = []
        self._fails_at = fails_at

    def started(self, job: JobView) -> None:
        self.told.append(("started", job.name))

    def round_closed(self, number: int, figures: Mapping[str, float]) -> None:
        if number == self._fails_at:
            raise OSError("the disk is full")
        self.told.append((number, dict(figures)))

    def ended(self, job: JobView) -> None:
        self.told.append(("ended", str(job.state)))


def test_callbacks_get_each_round_once_in_order_with_the_api_s_figures(job: TrainingJob) -> None:
    heard = Remembered()
    job.watch(QUIET, [heard])
    assert heard.told[0] == ("started", "Sequential")
    assert heard.told[-1] == ("ended", "finished")
    expected = [
        (one.number, {"loss": one.loss} | {f"held_out/{name}": value for name, value in (one.metrics or {}).items()})
        for one in job.rounds()
    ]
    assert heard.told[1:-1] == expected
    assert set(expected[0][1]) == FIGURES


def test_a_callback_that_fails_is_warned_of_once_and_ends_no_watching(job: TrainingJob) -> None:
    """A tracker that is down must not keep a script from `load_into`, nor the other trackers from their rounds."""
    failing, deaf, heard, said = Remembered(fails_at=1), Deaf(), Remembered(), StringIO()
    ended = job.watch(Console(file=said, width=1000), [deaf, failing, heard])
    assert ended.state == "finished"
    assert [told[0] for told in failing.told] == ["started", 0, 2, "ended"]
    assert [told[0] for told in heard.told] == ["started", 0, 1, 2, "ended"]
    assert said.getvalue().count("Remembered does not record this job: OSError: the disk is full") == 1
    assert said.getvalue().count("Deaf does not record this job: ConnectionError: the tracker is down") == 1


class Deaf(Remembered):
    """A tracker that is down from the start."""

    def started(self, *_told: object) -> None:
        raise ConnectionError("the tracker is down")

    round_closed = ended = started


def test_tensorboard_reads_every_round(job: TrainingJob, tmp_path: Path) -> None:
    job.watch(QUIET, [TensorBoard(tmp_path)])
    read = event_accumulator.EventAccumulator(str(tmp_path / job.id))
    read.Reload()
    assert set(read.Tags()["scalars"]) == FIGURES
    losses = {event.step: event.value for event in read.Scalars("held_out/loss")}
    assert losses == pytest.approx({one.number: (one.metrics or {})["loss"] for one in job.rounds()})


@FULL
def test_mlflow_keeps_rounds_fields_and_the_end(job: TrainingJob, tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/runs.db"
    job.watch(QUIET, [callbacks.MLflow("digits", place)])
    client = pytest.importorskip("mlflow.tracking").MlflowClient(place)
    (run,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    assert (run.info.status, run.data.tags["job"], run.data.tags["state"]) == ("FINISHED", job.id, "finished")
    assert run.data.params["optimizer.lr"] == "0.001"
    history = {one.step: one.value for one in client.get_metric_history(run.info.run_id, "loss")}
    assert history == pytest.approx({one.number: one.loss for one in job.rounds()})


@FULL
def test_weights_and_biases_keeps_an_offline_run(
    job: TrainingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    job.watch(QUIET, [callbacks.WeightsAndBiases(project="digits", mode="offline", dir=tmp_path)])
    wanted = {name.encode() for name in ("held_out/accuracy", "optimizer", job.id, "finished")}
    wait_until(lambda: wanted <= {name for name in wanted if name in recorded(tmp_path)})


def recorded(folder: Path) -> bytes:
    """Returns an offline run's log so far: its own process writes it, and ends after the run."""
    (kept,) = folder.glob("wandb/offline-run-*/*.wandb")
    whole = kept.read_bytes()
    return b"".join(whole[start + HEADER : start + BLOCK] for start in range(0, len(whole), BLOCK))


@pytest.mark.parametrize("name", leave_to_full(["TensorBoard", "MLflow", "WeightsAndBiases"]))
def test_all_are_callbacks(name: str) -> None:
    """The two others take a second to import."""
    assert all(callable(getattr(getattr(callbacks, name), told)) for told in ("started", "round_closed", "ended"))


def test_a_notebook_shows_the_job_and_its_curve(job: TrainingJob, tmp_path: Path) -> None:
    table = job._repr_html_()
    assert "finished" in table
    assert f"<th>rounds done</th><td>{ROUNDS}/{ROUNDS}</td>" in table
    picture = job.plot("<my job>")
    picture.save(tmp_path / "curve.svg")
    assert picture._repr_svg_() == (tmp_path / "curve.svg").read_text()
    assert "&lt;my job&gt;" in picture.svg


def test_a_job_without_a_loss_has_no_curve() -> None:
    with pytest.raises(Refused, match="no round of this job has a loss yet"):
        draw_loss_curve("none", [])
