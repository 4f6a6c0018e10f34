"""The researcher's interface to the market: takes a module, a loss and a dataset, and returns a job."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from typing import Any

from torch import nn

from gradmarket.card_advice import describe_cards
from gradmarket.commands.needs import Speed
from gradmarket.data.pack import HELD_OUT
from gradmarket.endpoint import find_endpoint
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.money import LOCAL_TOKEN, TokenUnit
from gradmarket.market.terms import Amount
from gradmarket.market.views.service_views import USUAL, CreatedWebhook, SpendingView, WebhookView
from gradmarket.price_guide import describe_guidance
from gradmarket.runner.ready_metrics import Metric
from gradmarket.sdk.arguments import check_above_zero, convert_numbers
from gradmarket.sdk.job_handle import TrainingJob
from gradmarket.sdk.measuring import Measuring, Stop
from gradmarket.sdk.model import warn_of_precision
from gradmarket.sdk.planning import ADAMW, Asked, JobPlan, ReadyJob, plan_job, prepare_job
from gradmarket.sdk.sweep import (
    Point,
    Sweep,
    apply_point,
    cancel_jobs,
    choose_module,
    describe_point,
    describe_uncancelled,
    list_points,
    run_in_threads,
)
from graphdoc import formats, tensors
from graphdoc.export import Loss


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
        validation: Any = None,
        metrics: Sequence[str | Metric] = (),
        stop: Stop = (),
        patience: int | None = None,
        continue_from: TrainingJob | str | None = None,
        **fields: Any,
    ) -> TrainingJob:
        """Posts a job that trains `module` from its current state, and uploads its model and data. Workers see all of
        it except the evaluation rows.

        `loss(module(x), y)` is the mean over the rows. `dataset`: see rows.load_rows. Each task takes `rows` rows; a
        fraction `held_out` of all rows is kept for evaluation. Without a `seed` the service draws one. `price` of an
        agreeing replica and every other amount is a whole number of the token's smallest unit, or like "0.01 GRAD" or
        "1e18 units"; or it is a price rule with its settings (docs/payment.md).
        `private` makes it a job of others' rows, which stay with their holders (docs/private.md): `holders`, the
        addresses of their workers, and the other fields of PrivateData. `dataset` then serves for evaluation only,
        never for training. `validation` is a dataset to measure on in place of `held_out`, converted as the training
        rows are. `metrics` are names of ready-made ones, and functions of the module's answer and y to one number, of
        all those rows together (docs/job.md). `stop` ends the job early: "auc > 0.9", "loss stalls 5", or rules of the
        job file; `patience` once this many evaluations brought nothing better of the first metric, or else of the loss.
        `continue_from` is an earlier job of the same model. Once that is finished, this one starts from its parameters,
        in place of the module's, and its optimizer's state; `rounds` are more rounds, and other fields default to its.
        `fields` are further fields of the job, such as `arithmetic`. Before anything is sent, the module's result is
        compared, bit by bit, with the workers' native computation.

        Raises DocumentRefused for a model that the market cannot express, Refused for an unusable dataset or field,
        ServiceProblem if the service refuses, ServiceUnreachable if it does not answer.
        """
        if continue_from is not None:
            fields = {"continue_from": continue_from, **fields}
        measured = Measuring(validation, metrics, stop, patience)
        asked = Asked(
            rounds, price, optimizer, rows, target, held_out, partition_format, seed, private, fields, measured
        )
        ready = self._prepare_job(module, loss, dataset, asked)
        with suppress(MarketError):  # a service may publish neither prices nor workers
            warn_of_precision(self._client.prices().classes, fields)
        return self._post_job(ready, private)

    def sweep(
        self,
        module: nn.Module | Callable[[dict[str, Any]], nn.Module],
        loss: Loss,
        dataset: Any,
        grid: Mapping[str, Sequence[Any]],
        *,
        tag: str | None = None,
        at_once: int = 4,
        **arguments: Any,
    ) -> Sweep:
        """Posts a job for every combination of the grid's values, all with one tag, and returns them to be compared.

        `grid` maps arguments of train to lists of values; "optimizer.lr" is a part of one. `module` is trained anew in
        each run, or is a function that makes a run's module of its point, a dict of the grid's names. `arguments` are
        train's, the same in all runs. All runs are prepared before the first is posted, `at_once` of them in threads;
        where one cannot be posted, those before it are cancelled, and a note of the error names those that could not
        be. Raises as train does, and Refused for a malformed grid.
        """
        tag, points = tag or f"sweep-{token_hex(4)}", list_points(grid)
        check_above_zero(at_once=at_once)
        given = {"optimizer": ADAMW, **arguments}
        if isinstance(own := given.pop("tags", ()), str) or not isinstance(own, Iterable):
            raise Refused(f"tags: give a list, such as [{str(own)[:40]!r}]")
        tags = [tag, *own]

        def prepare(point: Point) -> ReadyJob:
            asked = Asked.of({"tags": tags, "note": describe_point(point)} | apply_point(given, point))
            return self._prepare_job(choose_module(module, point), loss, dataset, asked)

        ready = list(run_in_threads(prepare, points, at_once))
        posted = dict[int, TrainingJob]()

        def post(place: int) -> None:
            posted[place] = self._post_job(ready[place], given.get("private"))

        try:
            list(run_in_threads(post, range(len(ready)), at_once))
        except BaseException as error:
            if left := cancel_jobs(posted.values()):
                error.add_note(describe_uncancelled(left))
            raise
        return Sweep(tag, points, [posted[place] for place in range(len(ready))])

    @staticmethod
    def plan(
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
        validation: Any = None,
        metrics: Sequence[str | Metric] = (),
        stop: Stop = (),
        patience: int | None = None,
        tflops: float = 10.0,
        mbit: float = 100.0,
        workers: int | None = None,
        market: "Market | None" = None,
        **fields: Any,
    ) -> JobPlan:
        """Returns the cost and duration of `train` with these arguments. Sends nothing and needs no service: amounts
        are in GRAD, a local chain's token.

        With a `market` it includes the prices that others paid there, and amounts are in its token.
        `workers` of `tflops` TFLOP/s with a link of `mbit` Mbit/s are assumed, by default as many as a round occupies.
        Raises as `train` does before it sends anything.
        """
        check_above_zero(tflops=tflops, mbit=mbit, workers=1 if workers is None else workers)
        if market is not None and not hasattr(market, "_client"):
            raise Refused("market: give a Market, such as Market(url)")
        wanted = Measuring(validation, metrics, stop, patience)
        asked = Asked(rounds, price, optimizer, rows, target, held_out, partition_format, seed, private, fields, wanted)
        token = LOCAL_TOKEN if market is None else TokenUnit.of(market._client.chain())
        ready = prepare_job(module, loss, dataset, asked, lambda: token)
        speed = Speed(tflops, mbit, workers or ready.spec.sizes.most * ready.spec.replication.replicas)
        made = plan_job(ready, speed, token)
        if market is None:
            return made
        guide, price = market._client.prices(), Amount(ready.spec.price.most)
        takes, precision = made.takes, ready.spec.precision
        lines = [describe_guidance(guide.paid, guide.taken, price, takes.operations, token)]
        lines += describe_cards(guide.classes, precision, takes.operations, takes.tokens, price, token)
        return replace(made, prices="; ".join(lines))

    def job(self, job_id: str) -> TrainingJob:
        """Returns a job that was posted before. Raises ServiceProblem if there is none."""
        return TrainingJob(self._client, self._client.job(job_id).id)

    def jobs(self, state: str | None = None, tag: str | None = None) -> Iterator[TrainingJob]:
        """Returns all jobs, or those in a state or with a tag, oldest first."""
        return (TrainingJob(self._client, job.id) for job in self._client.jobs(state, tag))

    def add_webhook(self, url: str, *happenings: str) -> CreatedWebhook:
        """Posts events of the token's jobs, such as "job.finished", to `url`; `secret` is returned only this once."""
        return self._client.create_webhook(url, happenings or USUAL)

    def webhooks(self) -> Iterator[WebhookView]:
        """Returns the token's webhooks; `trouble` is the reason why the newest try failed."""
        return self._client.webhooks()

    def remove_webhook(self, webhook_id: str) -> None:
        self._client.delete_webhook(webhook_id)

    def spending(self, token: str) -> SpendingView:
        """Returns the spending limit of the token of this name in any 24 hours, and the remainder."""
        return self._client.spending(token)

    def _prepare_job(self, module: Any, loss: Any, dataset: Any, asked: Asked) -> ReadyJob:
        earlier = asked.fields.get("continue_from")
        if earlier is not None:
            view = self.job(earlier.id if isinstance(earlier, TrainingJob) else earlier).view()
            seed = getattr(view.spec, "seed", None) if asked.seed is None else asked.seed  # the rows are cut by it, too
            asked = replace(asked, seed=seed, fields={**asked.fields, "continue_from": view.id})
        return prepare_job(module, loss, dataset, asked, lambda: TokenUnit.of(self._client.chain()))

    def _post_job(self, ready: ReadyJob, private: Mapping[str, Any] | None) -> TrainingJob:
        made, packed = ready.made, ready.packed
        parts = {
            "document": made.document,
            "evaluation": made.evaluation,
            "parameters": tensors.pack_tensors(made.parameters),
        }
        parts |= {} if made.metrics is None else {"metrics": made.metrics}
        model = {name: self._client.upload(data) for name, data in parts.items()}
        for name, file in packed.files.items():
            (self._client.upload_unserved if private or name == HELD_OUT else self._client.upload)(file)
        data: dict[str, Any] = {"manifest": self._client.upload(packed.body)}
        if private:
            data |= {"inputs": packed.manifest.model_dump(mode="json")["inputs"], **convert_numbers(private)}
        spec = {**ready.fields, "model": model, "data": data}
        return TrainingJob(self._client, self._client.submit(spec).id)
