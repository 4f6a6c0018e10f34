"""Callbacks that record a job's rounds elsewhere, one file each, which imports its library alone.

`job.watch(callbacks=[TensorBoard("runs")])` after `from gradmarket.callbacks import TensorBoard`. Rounds that closed
before `watch` was called are recorded too, in order. A round that an audit took back is recorded again, at its number,
once it is merged anew.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol

from gradmarket.client.transport import ServerSentEvent
from gradmarket.market.views.job_views import JobView

RECORDERS: Final = {"MLflow": "mlflow", "TensorBoard": "tensorboard", "WeightsAndBiases": "wandb"}
"""Class -> its module here, which is imported, with its library, when the class is asked for."""
LOSS = "loss"
HELD_OUT = "held_out"


def __getattr__(name: str) -> Any:
    if name not in RECORDERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{RECORDERS[name]}"), name)


def not_installed(name: str, package: str) -> ImportError:
    """Returns the error of a callback whose package is missing, with the command that installs it."""
    return ImportError(f"{name} needs {package}, which is not installed: pip install {package}", name=package)


class Callback(Protocol):
    def started(self, job: JobView) -> None:
        """Called once, before any round."""

    def round_closed(self, number: int, figures: Mapping[str, float]) -> None:
        """Called for each round, from 0 on: `loss` on the workers' rows before it, `held_out/…` measured after it."""

    def ended(self, job: JobView) -> None:
        """Called once, when the job is over or is watched no longer; `job` is its newest view."""


def figures_of(event: ServerSentEvent) -> dict[str, float]:
    """Returns the figures of a round's `round_closed` event."""
    loss, metrics = event.body.get("loss"), event.body.get("metrics") or {}
    figures = {} if loss is None else {LOSS: float(loss)}
    return figures | {f"{HELD_OUT}/{name}": float(value) for name, value in metrics.items()}


def fields_of(job: JobView) -> dict[str, str | int | float | bool]:
    """Returns the job's specification as flat names, such as `optimizer.lr`, for tables that compare runs."""
    return dict(_flatten_fields("", job.spec if isinstance(job.spec, dict) else job.spec.model_dump(mode="json")))


def _flatten_fields(name: str, value: object) -> list[tuple[str, str | int | float | bool]]:
    if isinstance(value, Mapping):
        return [
            pair
            for key, inner in value.items()
            for pair in _flatten_fields(f"{name}.{key}" if name else str(key), inner)
        ]
    return [] if value is None else [(name, value if isinstance(value, str | int | float | bool) else str(value))]
