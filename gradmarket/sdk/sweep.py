"""Several runs that differ in arguments: posted together, watched together, and compared in one table and picture."""

import copy
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from typing import Any, Final, TypeVar, get_args

from rich.console import Console
from torch import nn

from gradmarket.client.client_errors import ServiceProblem, ServiceUnreachable
from gradmarket.commands.following import OVER, compute_pause, describe_outage, is_passing_error
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.money import TokenUnit
from gradmarket.market.printable import replace_controls
from gradmarket.market.rules.metric_names import Better, choose_metric, is_better
from gradmarket.market.rules.stopping import find_direction
from gradmarket.market.terms import JobState
from gradmarket.sdk.arguments import check_console, check_seconds
from gradmarket.sdk.curve import Curve, draw_curves
from gradmarket.sdk.job_handle import TrainingJob, WatchTimeout
from gradmarket.terminal import ShownConsole

MOST_RUNS: Final = 256
LOOK_S: Final = 1.0
"""Seconds between two looks at a run that goes on."""
Point = Mapping[str, Any]
Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Run:
    """One point of a sweep, and how it went. `metrics` and `loss` are of the newest round, `best` of the best one."""

    point: Point
    job: TrainingJob
    state: str
    rounds: int
    loss: float | None
    metrics: Mapping[str, float]
    best: Mapping[str, float]
    paid: str


class Sweep:
    """Runs of one tag, in the order of their points."""

    def __init__(self, tag: str, points: Sequence[Point], jobs: Sequence[TrainingJob]) -> None:
        self.tag = tag
        self.points, self.jobs = list(points), list(jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    def __repr__(self) -> str:
        return f"Sweep({self.tag!r}, {len(self)} runs)"

    def watch(self, console: Console | None = None, timeout: float | None = None) -> list[Run]:
        """Prints a line for each run that ends or pauses, until none goes on; returns all runs.

        Where the service is away for a while, it is tried again. Raises WatchTimeout after `timeout` seconds; the runs
        go on.
        """
        check_console(console)
        check_seconds("timeout", timeout)
        console = console or ShownConsole()
        until = None if timeout is None else time.monotonic() + timeout
        left = dict(zip(map(str, range(len(self))), zip(self.points, self.jobs, strict=True), strict=True))
        tries = 0
        while left:
            for name, (point, job) in list(left.items()):
                try:
                    view, tries = job.view(), 0
                except (ServiceUnreachable, ServiceProblem) as error:
                    if not is_passing_error(error):
                        raise
                    tries += 1
                    if tries == 1:
                        console.print(describe_outage(error), markup=False, highlight=False)
                    break
                if view.state in OVER or view.state is JobState.PAUSED:
                    del left[name]
                    described = f"{describe_point(point)}: {view.state} {view.reason} {view.remedy}".strip()
                    console.print(replace_controls(described, " "), markup=False, highlight=False)
            if left and until is not None and time.monotonic() > until:
                raise WatchTimeout(f"after {timeout:g} s {len(left)} of {len(self)} runs go on, and so does watch()")
            if left:
                time.sleep(max(LOOK_S, compute_pause(tries) if tries else 0.0))
        return self.runs()

    def runs(self) -> list[Run]:
        """Returns the state of each run."""
        found = []
        for point, job in zip(self.points, self.jobs, strict=True):
            view = job.view()
            rounds = job.rounds() if view.best_round is not None else []
            best = next((one.metrics for one in rounds if one.number == view.best_round), None)
            paid = TokenUnit.of(job._client.chain()).text(view.costs.earned)
            done = 0 if view.round is None else view.round + 1
            metrics = dict(view.metrics or {})
            found.append(Run(point, job, view.state, done, view.loss, metrics, dict(best or {}), paid))
        return found

    def best(self, metric: str | None = None, better: Better | None = None) -> Run:
        """Returns the run whose best checkpoint has the best value of the metric, by default that of the evaluation, or
        the loss where no run has that.

        `better`: "higher" or "lower", by default as the runs' own stop rules have it, else less loss or perplexity and
        more of any other. Raises Refused where no run measured it.
        """
        if better not in (None, *get_args(Better)):
            raise Refused(f"better: give {' or '.join(map(repr, get_args(Better)))}, not {better!r}")
        runs = self.runs()
        specs = [job.view().spec for job in self.jobs]
        evaluations = (getattr(spec, "evaluation", None) for spec in specs)
        wanted = next((one.metric for one in evaluations if one is not None and one.metric), "loss")
        metric = metric or choose_metric(wanted, [run.best for run in runs])
        directions = (find_direction(getattr(spec, "stop", ()), metric) for spec in specs)
        better = better or next(filter(None, directions), None)
        measured = [run for run in runs if metric in run.best]
        if not measured:
            raise Refused(f"no run of {self.tag} has measured {metric}", "wait for a round, or name another metric")
        return choose_best(measured, metric, better)

    def plot(self) -> Curve:
        """Returns the training losses of all runs as one picture; raises Refused without one."""
        lines = {
            describe_point(point): [(one.number, one.loss) for one in job.rounds() if one.loss is not None]
            for point, job in zip(self.points, self.jobs, strict=True)
        }
        return draw_curves(self.tag, lines)

    def cancel(self) -> None:
        """Ends all runs that go on. Raises Refused, after all attempts, with the ids of those that did not end."""
        if left := cancel_jobs(self.jobs):
            raise Refused(describe_uncancelled(left), "cancel them again")

    def _repr_html_(self) -> str:
        """A notebook's table of the runs."""
        names = list(self.points[0])
        runs = self.runs()
        measured = list(dict.fromkeys(name for run in runs for name in run.metrics))
        head = [*names, "state", "rounds", "loss", *measured, "paid", "job"]
        lines = []
        for run in runs:
            figures = [run.loss, *(run.metrics.get(name) for name in measured)]
            formatted = ["" if value is None else f"{value:.4g}" for value in figures]
            lines.append([*map(str, run.point.values()), run.state, str(run.rounds), *formatted, run.paid, run.job.id])
        cells = (f"<tr>{''.join(f'<td>{escape(replace_controls(cell))}</td>' for cell in line)}</tr>" for line in lines)
        return f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>{''.join(cells)}</table>"


def list_points(grid: Any) -> list[dict[str, Any]]:
    """Returns every combination of a grid's values. Raises Refused for a malformed grid."""
    if not isinstance(grid, Mapping) or not grid:
        raise Refused("grid: give a mapping of arguments to lists of values, such as {'optimizer.lr': [0.1, 0.01]}")
    for name, values in grid.items():
        if not isinstance(name, str):
            raise Refused(f"grid: {name!r} is no argument's name: write it like 'rows' or 'optimizer.lr'")
        if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
            remedy = f"give {name}'s tolist()" if hasattr(values, "tolist") else f"such as [{values or 0.1!r}]"
            raise Refused(f"grid: {name} needs a list of values, {remedy}")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if len(points) > MOST_RUNS:
        raise Refused(f"grid: {len(points)} runs are too many at once: {MOST_RUNS} are the most")
    return points


def apply_point(arguments: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """Returns the arguments with the point's values; a name with dots is of a mapping within: "optimizer.lr"."""
    given = {name: dict(value) if isinstance(value, Mapping) else value for name, value in arguments.items()}
    for path, value in point.items():
        *above, name = path.split(".")
        holder = given
        for part in above:
            inner = holder.get(part, {})
            if not isinstance(inner, Mapping):
                raise Refused(
                    f"grid: {path} names a part of {part}, which is {str(inner)[:40]!r}: give it as a mapping"
                )
            holder[part] = dict(inner)
            holder = holder[part]
        holder[name] = value
    return given


def choose_module(module: Any, point: Point) -> nn.Module:
    """Returns the point's own module: a copy of the given one, or the result of the given function of the point."""
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    made: nn.Module = module(dict(point)) if callable(module) and not isinstance(module, type) else module
    return made


def describe_point(point: Point) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.items())


def run_in_threads(act: Callable[[Item], Made], items: Sequence[Item], at_once: int) -> Iterator[Made]:
    """Yields results in order; at the first failure, nothing more is begun."""
    with ThreadPoolExecutor(at_once) as pool:
        begun = [pool.submit(act, item) for item in items]
        try:
            for one in begun:
                yield one.result()
        finally:
            for one in begun:
                one.cancel()


def choose_best(measured: Sequence[Run], metric: str, better: Better | None = None) -> Run:
    """Returns the run with the best value, the first of equal ones."""
    chosen = measured[0]
    for run in measured[1:]:
        chosen = run if is_better(metric, run.best[metric], chosen.best[metric], better) else chosen
    return chosen


def cancel_jobs(jobs: Iterable[TrainingJob]) -> list[str]:
    """Ends the jobs that go on, and returns the ids of those that could not be ended."""
    left = []
    for job in jobs:
        try:
            if job.view().state not in OVER:
                job.cancel()
        except MarketError:
            left.append(job.id)
    return left


def describe_uncancelled(left: Sequence[str]) -> str:
    return f"not cancelled, and still spending: {', '.join(left)}"
