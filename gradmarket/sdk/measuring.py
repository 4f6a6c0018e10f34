"""The measurements that Market.train is asked for: rows of one's own, metrics of them, and stop rules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gradmarket.market.errors import Refused
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import metric_names as names
from gradmarket.market.rules.stopping import RULE, StopAtMetric, StopAtPatience
from gradmarket.runner import ready_metrics as ready
from gradmarket.runner.ready_metrics import Metric
from graphdoc.document.publish import MetricValues
from graphdoc.document.schema import parse_document
from graphdoc.figures import Published

Stop = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""Rules that end a job early: as text, as the fields of the job file, or several of them."""


@dataclass(frozen=True)
class Measuring:
    """The arguments of Market.train that concern measurement; see there."""

    validation: Any = None
    metrics: Sequence[str | Metric] = ()
    stop: Stop = ()
    patience: int | None = None


def check_measured(measured: Measuring, private: bool, measures: bool) -> None:
    """Raises Refused where there is nothing to measure on, or it is given twice, or a metric has no name."""
    if private and measured.validation is not None:
        raise Refused("validation: a private job is measured on its own dataset: leave it out")
    if isinstance(measured.metrics, str) or not isinstance(measured.metrics, Sequence):
        raise Refused(f"metrics: give a list, such as [{str(measured.metrics)[:40]!r}]")
    if not measures and (measured.metrics or measured.stop or measured.patience is not None):
        raise Refused("metrics: nothing is held out to measure on: give validation=(x, y), or held_out=0.1")
    stop: Any = measured.stop
    if not isinstance(stop, str | Mapping | Sequence):
        raise Refused(f"stop: a {type(stop).__name__} is no rule: {RULE}")
    for metric in measured.metrics:
        _name_metric(metric)


def list_stop_fields(measured: Measuring) -> dict[str, Any]:
    """Returns the job's `stop`, or nothing where no rule was given."""
    given = measured.stop
    rules: list[Any] = [given] if isinstance(given, str | Mapping) else list(given)
    if measured.patience is not None:
        first = _name_metric(measured.metrics[0]) if measured.metrics else names.LOSS
        rules.append({"metric": first, "patience": measured.patience})
    return {"stop": rules} if rules else {}


def name_metrics(measured: Measuring, spec: JobSpec) -> dict[str, Metric]:
    """Returns the metrics by name, with the ready-made ones that a rule waits for. Raises Refused for two of a name."""
    found: dict[str, Metric] = {}
    for metric in measured.metrics:
        name = _name_metric(metric)
        if name in found or name == names.LOSS:
            taken = "is measured of every job" if name == names.LOSS else "stands there twice"
            raise Refused(f"metrics: {name} {taken}: name the function otherwise, or leave it out")
        found[name] = ready.load_metric(metric) if isinstance(metric, str) else metric
    for name in _list_watched(spec):
        if names.is_ready(name) and name != "accuracy" and name not in found:
            found[name] = ready.load_metric(name)
    return found


def build_metrics(metrics: Mapping[str, Metric]) -> MetricValues | None:
    """Returns the source of the metrics document; None where no metric is asked for."""
    return partial(ready.compute_metrics, metrics) if metrics else None


def check_stop_metrics(made: Published, spec: JobSpec) -> None:
    """Raises Refused where a rule waits for a metric that nothing measures."""
    sums = parse_document(made.evaluation).metrics
    whole = {} if made.metrics is None else parse_document(made.metrics).metrics
    known = {names.LOSS, *sums, *whole}
    for name in _list_watched(spec):
        if name not in known:
            raise Refused(
                f"stop: nothing measures {name!r}; measured are {', '.join(sorted(known))}; name it in metrics, "
                f"ready-made are {', '.join(names.READY)}, or give a function of the module's answer and y"
            )


def _list_watched(spec: JobSpec) -> list[str]:
    return [rule.metric for rule in spec.stop if isinstance(rule, StopAtMetric | StopAtPatience)]


def _name_metric(metric: Any) -> str:
    if isinstance(metric, str):
        return metric
    name = getattr(metric, "__name__", "")
    if not isinstance(metric, Callable):  # type: ignore[arg-type]  # of any signature
        raise Refused(f"metrics: a {type(metric).__name__} is no metric: give a name, or a function of answer and y")
    if not name.isidentifier():
        raise Refused("metrics: a function without a name of its own: define it by `def name(answer, y):`")
    return str(name)
