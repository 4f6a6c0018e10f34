"""Shows a job's rounds as a progress bar on a terminal, and as one line per round elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gradmarket.commands import progress
from gradmarket.commands.following import Show
from gradmarket.market.money import TokenUnit
from gradmarket.market.views.job_views import JobView


@contextmanager
def open_progress_bar(console: Console, token: TokenUnit) -> Iterator[Show]:
    """Yields `show`, which takes the job's view whenever something may have changed."""
    if not console.is_terminal:
        with progress.display_progress(console, token) as show:
            yield show
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[told]}", markup=False), console=console) as shown:
        task = shown.add_task("", total=None, told="")

        def show_bar(job: JobView) -> None:
            done = 0 if job.round is None else job.round + 1
            shown.update(task, description=job.name, total=job.rounds, completed=done, told=_format_figures(job, token))

        yield show_bar


def _format_figures(job: JobView, token: TokenUnit) -> str:
    """Returns the known figures besides the rounds, and why the job waits."""
    facts = [f"{name} {value}" for name, value in progress.list_job_figures(job, token)[1:] if value != "-"]
    return "  ".join([*facts, job.reason]).strip()
