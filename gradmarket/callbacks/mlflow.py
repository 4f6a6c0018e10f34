"""Records a job's rounds in MLflow. Needs `pip install mlflow` or `mlflow-skinny`."""

from collections.abc import Mapping
from typing import Final

from gradmarket.callbacks import fields_of, not_installed
from gradmarket.market.views.job_views import JobView

try:
    from mlflow.entities import Param
    from mlflow.tracking import MlflowClient
except ModuleNotFoundError:
    raise not_installed("MLflow", "mlflow") from None

LONGEST: Final = 500
"""Characters of a parameter's value that every store of MLflow takes."""


class MLflow:
    """Adds a run to `experiment`, at the tracking server of `uri`, or MLflow's own if none."""

    def __init__(self, experiment: str = "gradmarket", uri: str | None = None) -> None:
        self._client, self._experiment = MlflowClient(uri), experiment

    def started(self, job: JobView) -> None:
        known = self._client.get_experiment_by_name(self._experiment)
        experiment = self._client.create_experiment(self._experiment) if known is None else known.experiment_id
        self._run = self._client.create_run(experiment, run_name=job.name, tags={"job": job.id}).info.run_id
        fields = [Param(name, str(value)[:LONGEST]) for name, value in fields_of(job).items()]
        self._client.log_batch(self._run, params=fields)

    def round_closed(self, number: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._client.log_metric(self._run, name, value, step=number)

    def ended(self, job: JobView) -> None:
        self._client.set_tag(self._run, "state", str(job.state))
        self._client.set_terminated(self._run, "FINISHED" if job.state == "finished" else "KILLED")
