"""Records a job's rounds in Weights & Biases. Needs `pip install wandb`; offline with `mode="offline"`."""

from collections.abc import Mapping
from typing import Any

from gradmarket.callbacks import fields_of, not_installed
from gradmarket.market.views.job_views import JobView

try:
    import wandb
except ModuleNotFoundError:
    raise not_installed("WeightsAndBiases", "wandb") from None


class WeightsAndBiases:
    """Starts a run of the job's name; `options` are those of `wandb.init`, such as `project`, `dir` and `mode`."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    def started(self, job: JobView) -> None:
        named = {"name": job.name, "config": {"job": job.id, **fields_of(job)}}
        self._run = wandb.init(**{**named, **self._options})

    def round_closed(self, number: int, figures: Mapping[str, float]) -> None:
        self._run.log({"round": number, **figures})

    def ended(self, job: JobView) -> None:
        self._run.summary.update({"state": str(job.state), "paid": job.costs.earned, "parameters": job.parameters})
        self._run.finish()
