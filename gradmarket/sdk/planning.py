"""Computes the cost and duration of a job from Python without a service, and prepares the job for posting."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from torch import nn

from gradmarket.commands.needs import Resources, Speed, compute_resources, in_words_of_time, list_resource_lines
from gradmarket.data.pack import HELD_OUT, PARTITION_ROWS, Cut, Packed, pack_dataset
from gradmarket.market.errors import Refused
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.job import JobSpec
from gradmarket.market.money import LOCAL_TOKEN, TokenUnit, in_smallest
from gradmarket.market.sampling import check_weighed
from gradmarket.runner import DocumentInfo, Runner
from gradmarket.sdk.arguments import (
    check_fraction,
    check_loss,
    check_module,
    check_partition_format,
    check_private,
    convert_numbers,
    settings_of,
)
from gradmarket.sdk.measuring import (
    Measuring,
    build_metrics,
    check_measured,
    check_stop_metrics,
    list_stop_fields,
    name_metrics,
)
from gradmarket.sdk.model import check_rows_apart, set_job_arithmetic, warn_of_coupled_rows
from gradmarket.sdk.rows import load_rows, load_validation
from gradmarket.user_files import check_input
from graphdoc import formats
from graphdoc.document import schema
from graphdoc.export import Loss, check_taken, export_module
from graphdoc.figures import Published

ADAMW: Final = {"name": "adamw", "lr": 1e-3}


@dataclass(frozen=True)
class Asked:
    """The arguments of Market.train besides module, loss and dataset."""

    rounds: int
    price: int | str | Mapping[str, Any]
    optimizer: Mapping[str, Any] = field(default_factory=lambda: dict(ADAMW))
    rows: int = 64
    target: str | None = None
    held_out: float = 0.1
    partition_format: str = formats.DEFAULT
    seed: int | None = None
    private: Mapping[str, Any] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    measured: Measuring = field(default_factory=Measuring)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Asked":
        """Raises Refused where rounds or price are not among Market.train's arguments."""
        if missing := {"rounds", "price"} - arguments.keys():
            raise Refused(f"give {' and '.join(sorted(missing))}, as for train")
        known, measuring = ({one.name for one in fields(kind)} - {"fields", "measured"} for kind in (cls, Measuring))
        own = {name: value for name, value in arguments.items() if name in known}
        measured = Measuring(**{name: value for name, value in arguments.items() if name in measuring})
        others = {name: value for name, value in arguments.items() if name not in known | measuring}
        return cls(**own, fields=others, measured=measured)


@dataclass(frozen=True)
class ReadyJob:
    """Everything needed to post a job; `fields` have no model and data yet."""

    fields: dict[str, Any]
    spec: JobSpec
    made: Published
    packed: Packed


@dataclass(frozen=True)
class JobPlan:
    """`at_most`: the job's highest cost, `expected`: its cost without disagreement, as people write amounts.

    `seconds`: from its posting to its end, overhead included; `takes` has the parts.
    """

    at_most: str
    expected: str
    seconds: float
    takes: Resources
    speed: Speed
    prices: str = ""
    """A market's price per GFLOP and the workers there that would take this job's; empty where no market was asked."""

    def __str__(self) -> str:
        costs = [("at most", self.at_most), ("expected", f"{self.expected} if nobody disagrees")]
        costs += [("prices", self.prices)] if self.prices else []
        return "\n".join(
            f"{name:>14}  {value}" for name, value in [*costs, *list_resource_lines(self.takes, self.speed)]
        )

    def __repr__(self) -> str:
        return f"JobPlan({self.at_most} at most, about {in_words_of_time(self.seconds)})"


def prepare_job(module: nn.Module, loss: Loss, dataset: Any, asked: Asked, token: Callable[[], TokenUnit]) -> ReadyJob:
    """Checks, exports and packs the arguments of Market.train; see there."""
    check_module(module)
    check_loss(loss)
    check_private(asked.private)
    check_fraction(asked.held_out)
    check_partition_format(asked.partition_format)
    for name, source in (("model", "module"), ("data", "dataset")):
        if name in asked.fields:
            raise Refused(f"{name}: train makes it of the {source}", "leave it out")
    private, price = asked.private, asked.price
    fields = {"name": type(module).__name__, "step": {"rows": asked.rows}, **asked.fields}
    if isinstance(step := fields["step"], Mapping):
        fields["step"] = {"rows": asked.rows, **step}
    fields |= {} if asked.seed is None else {"seed": asked.seed}
    fields |= {"optimizer": settings_of(asked.optimizer), "rounds": asked.rounds}
    fields |= {"price": dict(price) if isinstance(price, Mapping) else str(price)}
    own = asked.measured.validation is not None
    measures = bool(private or own or asked.held_out)
    check_measured(asked.measured, bool(private), measures)
    fields = in_smallest(convert_numbers(fields | list_stop_fields(asked.measured)), token)
    spec = _check_fields(fields, private, measures)
    metrics = name_metrics(asked.measured, spec)
    loaded = load_rows(dataset, asked.target)
    arrays = loaded.arrays
    most = len(arrays["y"]) if private else max(PARTITION_ROWS, 2 * spec.step.rows)
    held_out = 0.0 if private or own else asked.held_out
    measured_rows = load_validation(asked.measured.validation, asked.target, loaded) if own else None
    cut = Cut(most, asked.partition_format, held_out, convert_numbers(asked.seed) or 0, classes=loaded.classes)
    packed = pack_dataset(arrays, cut, loaded.encoding, measured_rows)
    made = export_module(module, loss, arrays, spec.precision, build_metrics(metrics))
    made = set_job_arithmetic(made, spec)
    for rows in (arrays, measured_rows):
        if rows is not None:
            check_taken(made, rows, spec.step.pass_rows)
    check_stop_metrics(made, spec)
    check_rows_apart(made, spec.step)
    warn_of_coupled_rows(made, arrays, spec)
    check_weighed(spec, build_layout(schema.parse_document(made.document)))
    if measures:
        partition = packed.manifest.partitions[0].name if private else HELD_OUT
        # The metric that is measured on the held-out rows
        measured: dict[str, Any] = {
            "partition": partition,
            "metric": next(
                iter(metrics), ("accuracy" if "accuracy" in json.loads(made.evaluation)["metrics"] else "loss")
            ),
        }
        measured |= {"metrics": list(metrics)} if metrics else {}
        fields["evaluation"] = measured | dict(fields.get("evaluation") or {})
    return ReadyJob(fields, _check_fields(fields, private, measures), made, packed)


def plan_job(ready: ReadyJob, speed: Speed, token: TokenUnit = LOCAL_TOKEN) -> JobPlan:
    """Returns the plan of a prepared job, whose document is bounded in a child as a service does."""
    spec = ready.spec
    with Runner() as runner:
        info = DocumentInfo.of(runner.load(ready.made.document))
        bound = runner.bound(*spec.step.pass_sizes, by_row=spec.step.by_row)
    takes = compute_resources(spec, ready.packed.manifest, info, bound, speed)
    most = spec.most_expensive if spec.budget is None else min(spec.budget, spec.most_expensive)
    expected = min(most, spec.sizes.all * spec.replication.replicas * spec.price.most)
    return JobPlan(token.text(most), token.text(expected), takes.job_seconds, takes, speed)


def _check_fields(fields: dict[str, Any], private: Mapping[str, Any] | None, measures: bool) -> JobSpec:
    """Validates the job's fields except model and data, before these are made. Raises Refused, naming the fields."""
    inputs, digest = {"x": {"dtype": "float32"}}, f"blake3:{'0' * 64}"
    data = {"inputs": inputs, "manifest": digest, **private} if private else {"ready": "digits"}
    stands_in = {"model": {"architecture": "mlp"}, "data": data}
    measured = {"evaluation": {"partition": HELD_OUT}} if measures else {}
    return check_input(JobSpec, measured | fields | stands_in, "the job")
