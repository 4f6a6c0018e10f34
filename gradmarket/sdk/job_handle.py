"""One job: its state, a bar while it runs, and its parameters loaded into the researcher's own module.

Rounds are shown as a progress bar on a terminal, and as one line each elsewhere.
"""

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from gradmarket.callbacks import Callback
from gradmarket.client import RequesterClient as Client
from gradmarket.commands import progress
from gradmarket.commands.following import OVER, Show, describe_outage, follow_job, record_callbacks, refuse_pause
from gradmarket.data.image_folders import FOLDER, encode_pictures
from gradmarket.data.inputs import select_inputs
from gradmarket.data.tables import encode_table, list_known_inputs, table_of
from gradmarket.data.token_rows import Text, encode_text, load_text_rows
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.money import TokenUnit
from gradmarket.market.printable import replace_controls
from gradmarket.market.terms import JobState
from gradmarket.market.views.job_views import CheckpointView, Extension, JobView, RoundView
from gradmarket.sdk.arguments import check_callbacks, check_console, check_module, check_seconds, check_title
from gradmarket.sdk.curve import Curve, draw_loss_curve
from gradmarket.terminal import ShownConsole
from gradmarket.user_files import check_input
from graphdoc.export import load_state
from graphdoc.tensors import unpack_tensors


@contextmanager
def open_progress_bar(console: Console, token: TokenUnit) -> Iterator[Show]:
    """Yields `show`, which takes the job's view whenever something may have changed."""
    if not console.is_terminal:
        with progress.display_progress(console, token) as show:
            yield show
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[figures]}", markup=False), console=console) as shown:
        task = shown.add_task("", total=None, figures="")

        def show_bar(job: JobView) -> None:
            done = 0 if job.round is None else job.round + 1
            # The known figures besides the rounds, and why the job waits
            facts = [f"{name} {value}" for name, value in progress.list_job_figures(job, token)[1:] if value != "-"]
            figures = "  ".join([*facts, job.reason]).strip()
            shown.update(task, description=job.name, total=job.rounds, completed=done, figures=figures)

        yield show_bar


class JobEnded(MarketError):
    """The job ended before it was done."""


class WatchTimeout(MarketError):
    """The job has not ended in time."""


class TrainingJob:
    """A job by its id.

    Methods raise ServiceProblem if the service refuses, ServiceUnreachable if it does not answer.
    """

    def __init__(self, client: Client, job_id: str) -> None:
        self._client = client
        self.id = job_id

    def __repr__(self) -> str:
        return f"TrainingJob({self.id!r})"

    def view(self) -> JobView:
        """Returns the job as the service describes it."""
        return self._client.job(self.id)

    @property
    def state(self) -> str:
        """draft, awaiting_funds, running, paused, finished, cancelled or failed."""
        return self.view().state

    @property
    def reason(self) -> str:
        """Why it does not proceed, or how it ended."""
        return self.view().reason

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics on the held-out rows, after the newest round that measured them."""
        return dict(self.view().metrics or {})

    @property
    def history(self) -> list[dict[str, float]]:
        """Of each closed round its number, `training loss` and held-out metrics, as far as they were measured."""
        closed = (one for one in self.rounds() if one.closed_at is not None)
        return [
            {"round": one.number} | ({} if one.loss is None else {"training loss": one.loss}) | dict(one.metrics or {})
            for one in closed
        ]

    @property
    def tags(self) -> list[str]:
        """The words that it is found by (Market.jobs)."""
        return list(self.view().tags)

    @property
    def note(self) -> str:
        """Its requester's note."""
        return self.view().note

    def label(self, tags: Sequence[str] | None = None, note: str | None = None) -> None:
        """Writes tags and a note on it in place of those that stand there; None leaves them."""
        self._client.label(self.id, tags, note)

    def _repr_html_(self) -> str:
        """A notebook's table of how the job stands."""
        job = self.view()
        facts = [("state", f"{job.state} {job.reason}".strip())]
        facts += progress.list_job_figures(job, TokenUnit.of(self._client.chain()))
        rows = (f"<tr><th>{escape(name)}</th><td>{_escape_text(value)}</td></tr>" for name, value in facts)
        return f"<table><caption>{_escape_text(job.name)} {escape(job.id)}</caption>{''.join(rows)}</table>"

    def plot(self, title: str | None = None) -> Curve:
        """Returns its loss by round as a picture that notebooks show and `save` writes; raises Refused without one."""
        check_title(title)
        return draw_loss_curve(title or self.view().name, self.rounds())

    def watch(
        self, console: Console | None = None, callbacks: Sequence[Callback] = (), timeout: float | None = None
    ) -> JobView:
        """Shows a bar until the job ends, and returns its last view. Raises JobEnded unless it finished, JobPaused with
        the command that mends it once it is paused, and WatchTimeout two seconds after `timeout` seconds at the latest.

        Each of `callbacks` (see gradmarket.callbacks) is called for every round; one that fails causes one warning, and
        the watching goes on. Where the service is away for a while, it is tried again; an interrupt (Ctrl-C) ends the
        watching, not the job.
        """
        check_callbacks(callbacks)
        check_console(console)
        check_seconds("timeout", timeout)
        console = console or ShownConsole()
        until = math.inf if timeout is None else time.monotonic() + timeout
        token = TokenUnit.of(self._client.chain())

        def check(job: JobView) -> None:
            refuse_pause(job)
            if job.state not in OVER and time.monotonic() > until:
                raise WatchTimeout(
                    f"after {timeout:g} s the job is {job.state}; it goes on, and so does another watch()"
                )

        def away(job: JobView, error: MarketError, tries: int) -> None:
            check(job)
            if tries == 1:
                console.print(describe_outage(error), markup=False, highlight=False)

        def warn(text: str) -> None:
            console.print(replace_controls(text, " "), markup=False, highlight=False)

        with (
            open_progress_bar(console, token) as show,
            record_callbacks(self._client, self.id, callbacks, warn) as on_event,
        ):

            def look(job: JobView) -> None:
                show(job)
                check(job)

            ended = follow_job(self._client, self.id, look, away, on_event)
        if ended.state is not JobState.FINISHED:
            raise JobEnded(replace_controls(f"{ended.state}: {ended.reason}", " "))
        return ended

    def load_into(self, module: nn.Module, after_round: int | None = None) -> None:
        """Writes the newest parameters, or those after a round, into `module`. Raises Refused for another model."""
        check_module(module)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "parameters.safetensors"
            self._client.download(self.id, path, after_round)
            load_state(module, unpack_tensors(path.read_bytes()))

    def load_best_into(self, module: nn.Module) -> int:
        """Writes the parameters with the best held-out result into `module`, and returns their round's number.

        Raises Refused for another model, and for a job without measured parameters.
        """
        best = self.view().best_round
        if best is None:
            raise Refused(f"job {self.id} has measured no parameters on held-out rows", "load_into loads the newest")
        self.load_into(module, best)
        return best

    def checkpoints(self) -> list[CheckpointView]:
        """Returns, for each merged round, the digest of the parameters after it, and whether they are stored."""
        return list(self._client.checkpoints(self.id))

    def encode(self, dataset: Any, tokenizer: Any = None) -> dict[str, np.ndarray]:
        """Returns a data frame's or table's rows as the model's inputs, converted as the training rows were, and `y`
        where its column is there; of a job of text a str as `x`, int64[1, tokens], or Text as rows of x and y, the
        tokens after; of one of pictures the Path of a file or of a folder of them as `x`. Raises Refused for a job of
        other data, a missing column, and a new class of y. `tokenizer`: the one of the training, unless that was by
        bytes.
        """
        manifest = parse_manifest(self._client.blob(self._client.publication(self.id).manifest))
        if manifest.text is not None:
            if isinstance(dataset, Text):
                return load_text_rows(dataset, manifest.text).arrays
            if not isinstance(dataset, str):
                raise Refused(f"job {self.id} trains on text: encode takes a str, or Text")
            return {"x": encode_text(dataset, tokenizer, manifest.text)[None]}
        if manifest.encoding is not None and FOLDER in manifest.encoding.categories:
            return {"x": encode_pictures(dataset, manifest.inputs["x"])}
        if manifest.encoding is None:
            remedy = "give its model what it was trained with"
            raise Refused(f"job {self.id} trains on no table, text or pictures: {remedy}")
        table = table_of(dataset)
        if table is None:
            raise Refused("encode takes a data frame of pandas or polars, an Arrow table, or a Hugging Face dataset")
        columns = encode_table(table, manifest.encoding)
        return dict(select_inputs(columns, list_known_inputs(columns, manifest.encoding)))

    def fund(self, amount: str) -> None:
        """Raises the budget by an amount like "0.5 GRAD"; a job that paused for lack of money goes on."""
        self._client.fund(self.id, TokenUnit.of(self._client.chain()).parse(amount))

    def extend(self, rounds: int | None = None, budget: str | None = None) -> "TrainingJob":
        """Gives it more rounds, or more money, and returns the job that has them.

        Without `rounds` that is this job, whose budget grows by `budget`, as `fund` does it. With `rounds` it is a new
        job with this one's fields and a deposit of its own, at most `budget` where it is named: it begins once this one
        is finished, from its parameters and its optimizer's state. With a constant schedule it has the bits of a job
        that simply runs longer; one that decays (cosine, linear) had ended here, and goes on from where the rounds of
        both would have it. The rounds of this job stay: they are under the digest that its offers and its escrow name.
        """
        if rounds is None:
            if budget is None:
                raise Refused('extend: give rounds, such as rounds=10, or a budget, such as budget="1 GRAD"')
            self.fund(budget)
            return self
        wanted = check_input(Extension, {"rounds": rounds, "budget": budget}, "extend")
        return TrainingJob(self._client, self._client.extend(self.id, wanted.rounds, wanted.budget).id)

    def cancel(self) -> None:
        """Ends the job and refunds the money that is not owed."""
        self._client.steer(self.id, "cancel")

    def pause(self) -> None:
        """Stops giving out leases."""
        self._client.steer(self.id, "pause")

    def resume(self) -> None:
        """Continues after a pause."""
        self._client.steer(self.id, "resume")

    def rounds(self) -> list[RoundView]:
        """Returns every round so far, with its loss and metrics."""
        return list(self._client.rounds(self.id))


def _escape_text(text: str) -> str:
    return escape(replace_controls(text))
