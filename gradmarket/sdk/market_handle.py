"""The researcher's interface to the market: takes a module, a loss and a dataset, and returns a job."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torch import nn

from gradmarket.data.pack import HELD_OUT, Cut, Packed, pack_dataset
from gradmarket.endpoint import find_endpoint
from gradmarket.json_input import check_input
from gradmarket.market.job import JobSpec
from gradmarket.market.model.layout import build_layout, check_weighed
from gradmarket.market.money import TokenUnit, in_smallest
from gradmarket.sdk.arguments import check_fraction, check_loss, check_module, check_private, settings_of
from gradmarket.sdk.job_handle import TrainingJob
from gradmarket.sdk.model import check_rows_apart, warn_of_coupled_rows
from gradmarket.sdk.rows import load_rows
from graphdoc import formats, tensors
from graphdoc.document import schema
from graphdoc.export import Loss, check_taken, export_module
from graphdoc.figures import Published

PARTITION_ROWS: Final = 4096
ADAMW: Final = {"name": "adamw", "lr": 1e-3}


class Market:
    """The service at `url` with its requester's `token`; by default the environment's, or this machine's own service.

    Raises NotFound if there is none.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self._client = find_endpoint(url, token).market()

    def __enter__(self) -> "Market":
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.__exit__(*exception)

    def train(
        self,
        module: nn.Module,
        loss: Loss,
        dataset: Any,
        *,
        rounds: int,
        price: int | str | Mapping[str, Any],
        optimizer: Mapping[str, Any] = ADAMW,
        rows: int = 64,
        target: str | None = None,
        held_out: float = 0.1,
        partition_format: str = formats.DEFAULT,
        seed: int | None = None,
        private: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> TrainingJob:
        """Posts a job that trains `module` from its current state, and uploads what it needs. Workers see all of it but
        the rows that are measured on.

        `loss(module(x), y)` is the mean over the rows. `dataset`: see rows.load_rows. Each task takes `rows` rows; a
        fraction `held_out` of all rows is kept for evaluation. Without a `seed` the service draws one. `price` of an
        agreeing replica and every other amount is a whole number of the token's smallest unit, or like "0.01 GRAD" or
        "1e18 units"; or it is a price rule with its settings (docs/payment.md).
        `private` makes it a job of others' rows, which stay with their holders (docs/private.md): `holders`, the
        addresses of their workers, and what else PrivateData has. `dataset` is then measured on and never trained on.
        `fields` are further fields of the job. Before anything is sent, the module's result is compared, bit by bit,
        with what workers will compute.

        Raises DocumentRefused for a model that the market cannot express, Refused for an unusable dataset or field,
        ServiceProblem if the service refuses, ServiceUnreachable if it does not answer.
        """
        check_module(module)
        check_loss(loss)
        check_private(private)
        check_fraction(held_out)
        fields = {"name": type(module).__name__, "step": {"rows": rows}, **fields}
        fields |= {} if seed is None else {"seed": seed}
        fields |= {"optimizer": settings_of(optimizer), "rounds": rounds}
        fields |= {"price": dict(price) if isinstance(price, Mapping) else str(price)}
        fields = in_smallest(fields, lambda: TokenUnit.of(self._client.chain()))
        spec = _check_fields(fields, private)
        loaded = load_rows(dataset, target)
        arrays = loaded.arrays
        most = len(arrays["y"]) if private else max(PARTITION_ROWS, 2 * spec.step.rows)
        cut = Cut(most, partition_format, 0.0 if private else held_out, seed or 0)
        packed = pack_dataset(arrays, cut, loaded.encoding)
        made = export_module(module, loss, arrays, spec.precision)
        check_taken(made, arrays, spec.step.pass_rows)
        check_rows_apart(made, spec.step)
        warn_of_coupled_rows(made, arrays, spec)
        check_weighed(spec, build_layout(schema.parse_document(made.document)))
        if held_out or private:
            measured = packed.manifest.partitions[0].name if private else HELD_OUT
            fields.setdefault("evaluation", {"partition": measured, "metric": _choose_metric(made)})
        return self._post_job(fields, made, packed, private)

    def job(self, job_id: str) -> TrainingJob:
        """Returns a job that was posted before. Raises ServiceProblem if there is none."""
        return TrainingJob(self._client, self._client.job(job_id).id)

    def jobs(self, state: str | None = None) -> Iterator[TrainingJob]:
        """Returns all jobs, oldest first."""
        return (TrainingJob(self._client, job.id) for job in self._client.jobs(state))

    def _post_job(
        self, fields: dict[str, Any], made: Published, packed: Packed, private: Mapping[str, Any] | None
    ) -> TrainingJob:
        parts = {
            "document": made.document,
            "evaluation": made.evaluation,
            "parameters": tensors.pack_tensors(made.parameters),
        }
        model = {name: self._client.upload(data) for name, data in parts.items()}
        for name, file in packed.files.items():
            (self._client.upload_unserved if private or name == HELD_OUT else self._client.upload)(file)
        data: dict[str, Any] = {"manifest": self._client.upload(packed.body)}
        if private:
            data |= {"inputs": packed.manifest.model_dump(mode="json")["inputs"], **private}
        spec = {**fields, "model": model, "data": data}
        return TrainingJob(self._client, self._client.submit(spec).id)


def _choose_metric(made: Published) -> str:
    """Returns the metric that is measured on the held-out rows."""
    return "accuracy" if "accuracy" in json.loads(made.evaluation)["metrics"] else "loss"


def _check_fields(fields: dict[str, Any], private: Mapping[str, Any] | None) -> JobSpec:
    """Validates all of the job but its model and data, before these are made. Raises Refused and names the fields."""
    inputs, digest = {"x": {"dtype": "float32"}}, f"blake3:{'0' * 64}"
    data = {"inputs": inputs, "manifest": digest, **private} if private else {"ready": "digits"}
    stands_in = {"model": {"architecture": "mlp"}, "data": data}
    measured = {"evaluation": {"partition": HELD_OUT}} if private else {}
    return check_input(JobSpec, measured | fields | stands_in, "the job")
