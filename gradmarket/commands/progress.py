"""Live progress of a job: round, loss, accuracy, accepted, rejected, paid, and why it waits."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from gradmarket.commands.following import Show
from gradmarket.market.money import TokenUnit
from gradmarket.market.views.job_views import JobView


@contextmanager
def display_progress(console: Console, token: TokenUnit) -> Iterator[Show]:
    """Yields a function that redraws a panel on a terminal; elsewhere prints a line per round and per state."""
    if not console.is_terminal:
        yield Lines(console, token).print_job_lines
        return
    with Live(console=console, refresh_per_second=8) as live:
        yield lambda job: live.update(_build_panel(job, token))


class Lines:
    def __init__(self, console: Console, token: TokenUnit) -> None:
        self._console = console
        self._token = token
        self._round: int | None = None
        self._why = ""

    def print_job_lines(self, job: JobView) -> None:
        why = f"{job.state}: {job.reason}" if job.reason else str(job.state)
        why += f" (`{job.remedy}`)" if job.remedy else ""
        if job.round != self._round:
            self._round = job.round
            self._print_line("  ".join(f"{name} {value}" for name, value in list_job_figures(job, self._token)))
        if why != self._why:
            self._why = why
            self._print_line(why)

    def _print_line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def list_job_figures(job: JobView, token: TokenUnit) -> list[tuple[str, str]]:
    """Returns the names and values shown for rounds and money; a dash for unknown values.

    The training loss is that of the parameters before the newest update, the held-out metrics those after it.
    """
    metrics = job.metrics or {}
    done, coverage = 0 if job.round is None else job.round + 1, list[tuple[str, str]]()
    if counts := job.coverage:  # of the tasks that were given out, those whose rows are in updates
        late = f", {counts.late} of them late" if counts.late else ""
        coverage = [("coverage", f"{counts.used} of {counts.used + counts.waiting} tasks{late}")]
    return [
        ("rounds done", f"{done}/{job.rounds}"),
        ("training loss", _format_figure(job.loss)),
        *((f"held-out {name}", _format_figure(value)) for name, value in sorted(metrics.items())),
        ("accepted", str(job.accepted)),
        ("rejected", str(job.rejected)),
        ("paid", token.text(job.costs.earned)),
        *coverage,
    ]


def _format_figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _build_panel(job: JobView, token: TokenUnit) -> Panel:
    grid = Table.grid(padding=(0, 2))
    for name, value in list_job_figures(job, token):
        grid.add_row(f"[dim]{escape(name)}[/dim]", escape(value))
    grid.add_row("[dim]deposited[/dim]", token.text(job.costs.deposited))
    grid.add_row("[dim]state[/dim]", escape(f"{job.state}  {job.reason}".rstrip()))
    if job.remedy:
        grid.add_row("[dim]fix[/dim]", escape(job.remedy))
    return Panel(grid, title=escape(f"{job.name}  {job.id}"), expand=False)
