"""`gradmarket job …`: the requester's commands."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from gradmarket import terminal
from gradmarket.commands import calibration, diff, ledger, plan, progress, proposal
from gradmarket.commands.edge import (
    DataOption,
    JobArgument,
    JsonOption,
    MarketOption,
    TokenOption,
    print_json,
)
from gradmarket.commands.following import JobPaused, describe_outage, follow_job, refuse_pause
from gradmarket.commands.job_file import read_job
from gradmarket.commands.job_reference import reference
from gradmarket.endpoint import find_endpoint
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.money import TokenUnit
from gradmarket.market.printable import replace_controls
from gradmarket.market.rules.pricing import PLAIN
from gradmarket.market.rules.replication import BEST
from gradmarket.market.terms import JobState
from gradmarket.market.views.job_views import JobView
from gradmarket.terminal import INTERRUPTED, ShownConsole, echo_text
from gradmarket.user_files import check_writable

LISTED: Final = ("rounds done", "accepted", "rejected", "paid")
"""The figures of a list of jobs."""
WIDE: Final = 140
"""Columns of a terminal from which on a list has room for the reasons."""
STEERING: Final = {
    "pause": "Give out no more leases; work in flight is judged and paid.",
    "resume": "Go on after a pause.",
    "cancel": "End a job; money that is not owed comes back.",
}

app = typer.Typer(no_args_is_help=True)


@app.command()
def submit(
    file: Annotated[str, typer.Argument(metavar="FILE.json", help="The job; - for standard input.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Post a job after printing its highest cost and its readers; prints its id."""
    posted, spec = read_job(file, lambda: find_endpoint(market, token, data).market())
    with find_endpoint(market, token, data).market() as client:
        unit, price = TokenUnit.of(client.chain()), spec.price
        most = spec.most_expensive if spec.budget is None else min(spec.budget, spec.most_expensive)
        # if every round is run and the first replicas of every task agree
        expected = min(most, spec.sizes.all * spec.replication.replicas * price.most)
        # of `proven` jobs newcomers, and workers of the last rounds, answer alone
        bound = "" if price.least() == price.most and spec.proof is None else "at most "
        tasks = f"{spec.tasks_per_round} to {spec.sizes.most}" if spec.growth else str(spec.tasks_per_round)
        least = min(spec.plan().first_wave, spec.plan(BEST).first_wave)
        # amounts of the price rule in tokens, everything else as in the job
        fields = (
            f"{name} {unit.text(value) if isinstance(value, str) else value}"
            for name, value in (price.model_extra or {}).items()
        )
        paid = unit.text(price.most) if price.name == PLAIN else f"by the rule {price.name}: {', '.join(fields)}"
        echo_text(
            f"{spec.name}: costs at most {unit.text(most)}, {bound}{unit.text(expected)} if nobody disagrees: "
            f"{spec.rounds} rounds of {tasks} tasks, {least} to {spec.replication.max_replicas} replicas a task. "
            f"Each that agrees is paid {paid}. The rest comes back.\n{spec.notice}",
            err=True,
        )
        if not yes and (file == "-" or not sys.stdin.isatty()):
            raise Refused("there is no terminal to confirm on: add --yes")
        if not yes and not typer.confirm("Post it?"):
            raise typer.Exit(1)
        job = client.submit(posted)
    if job.checks:
        echo_text(job.checks, err=True)
    print_json(job) if as_json else echo_text(job.id)


app.command("plan")(plan.plan)
app.command("propose")(proposal.propose)
app.command("reference")(reference)


@app.command("list")
def listed(
    state: Annotated[str | None, typer.Option(help="Only jobs in this state, such as running.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only jobs with this tag.")] = None,
    market: MarketOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """All jobs, oldest first."""
    with find_endpoint(market, None, data).market() as client:
        jobs = list(client.jobs(state, tag))
        if as_json:
            print_json(jobs)
            return
        token = TokenUnit.of(client.chain())
    _print_jobs(jobs, token, ShownConsole())


def _print_jobs(jobs: Sequence[JobView], token: TokenUnit, console: Console) -> None:
    """Prints a row a job; where a terminal has no room for the reasons beside them, these follow line by line."""
    beside = not console.is_terminal or console.width >= WIDE
    table = Table(Column("id", no_wrap=True), Column("name", overflow="fold"), Column("state", no_wrap=True))
    for name in (*LISTED, *(["why"] if beside else [])):
        table.add_column(name, no_wrap=name == "paid", overflow="fold")
    for job in jobs:
        figures = dict(progress.list_job_figures(job, token))
        row = (job.id, escape(job.name), job.state, *(figures[name] for name in LISTED))
        table.add_row(*row, *([escape(job.reason)] if beside else []))
    terminal.print_table(table, console)
    for job in jobs if not beside else ():
        if job.reason:
            console.print(f"{job.id}: {job.reason}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def show(job: JobArgument, market: MarketOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Show one job: its state, its cost, and why it waits."""
    with find_endpoint(market, None, data).market() as client:
        view = client.job(job)
        print_json(view) if as_json else _print_job(view, TokenUnit.of(client.chain()))


@app.command()
def watch(job: JobArgument, market: MarketOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Follow a job until it ends or pauses; with --json one object a change. Ends with 0 if the job finished."""
    with find_endpoint(market, None, data).market() as client:
        token = TokenUnit.of(client.chain())
        shown = nullcontext(print_json) if as_json else progress.display_progress(ShownConsole(), token)
        with shown as show:

            def look(view: JobView) -> None:
                show(view)
                refuse_pause(view)

            try:
                ended = follow_job(client, job, look, _print_outage)
            except JobPaused:  # shown, with its remedy
                raise typer.Exit(1) from None
            except KeyboardInterrupt:
                echo_text(f"The job goes on without you: `gradmarket job watch {job}` shows it again.", err=True)
                raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(0 if ended.state is JobState.FINISHED else 1)


def _print_outage(_job: JobView, error: MarketError, tries: int) -> None:
    if tries == 1:
        echo_text(describe_outage(error), err=True)


@app.command()
def fund(
    job: JobArgument,
    amount: Annotated[
        str | None, typer.Argument(help='How much more: a whole number of the smallest unit, or like "0.5 GRAD".')
    ] = None,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Raise the job's budget; the difference is deposited on-chain. A job that paused for it goes on.

    Where the money has an owner elsewhere, prints the transactions that it is to sign; without an amount, those alone.
    """
    with find_endpoint(market, token, data).market() as client:
        unit = TokenUnit.of(client.chain())
        changed = client.fund(job, None if amount is None else unit.parse(amount))
        if as_json:
            print_json(changed)
            return
        _print_job(changed, unit)
    for number, call in enumerate(changed.to_sign, 1):
        echo_text(f"\nsign {number}: {call.purpose}, from {call.owner} on chain {call.chain_id}")
        echo_text(f"  to    {call.to}\n  data  {call.data}")


@app.command()
def label(
    job: JobArgument,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="A tag in place of all that stand there; once for each.")
    ] = None,
    note: Annotated[str | None, typer.Option(help="A note in place of the one that stands there.")] = None,
    clear: Annotated[bool, typer.Option("--no-tags", help="Take all tags away.")] = False,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write tags and a note on a job, to find it again: `gradmarket job list --tag TAG`."""
    if not tags and note is None and not clear:
        raise Refused("nothing to write: add --tag WORD, --note TEXT, or --no-tags")
    if tags and clear:
        raise Refused("--tag writes tags and --no-tags takes all away: leave one out")
    with find_endpoint(market, token, data).market() as client:
        changed = client.label(job, tags or ([] if clear else None), note)
        print_json(changed) if as_json else _print_job(changed, TokenUnit.of(client.chain()))


app.command("diff")(diff.diff)


@app.command()
def extend(
    job: JobArgument,
    rounds: Annotated[int, typer.Option("--rounds", help="How many more rounds.")],
    budget: Annotated[
        str | None, typer.Option(help='The most that they may cost, like "1 GRAD"; by default their highest cost.')
    ] = None,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Post a job of more rounds that goes on from this one's end, with its fields; prints its id.

    It begins once this one is finished, from its parameters and its optimizer's state, with a deposit of its own.
    """
    with find_endpoint(market, token, data).market() as client:
        more = client.extend(job, rounds, budget)
        print_json(more) if as_json else echo_text(more.id)


app.command("ledger")(ledger.ledger)
app.command("calibration")(calibration.calibration)


def _add_steering_command(action: str, purpose: str) -> None:
    """Adds the command `action`, which sends just that action to the service."""

    @app.command(action, help=purpose)
    def steer(
        job: JobArgument,
        market: MarketOption = None,
        token: TokenOption = None,
        data: DataOption = None,
        as_json: JsonOption = False,
    ) -> None:
        with find_endpoint(market, token, data).market() as client:
            changed = client.steer(job, action)
            print_json(changed) if as_json else _print_job(changed, TokenUnit.of(client.chain()))


for _action, _purpose in STEERING.items():
    _add_steering_command(_action, _purpose)


@app.command()
def download(
    job: JobArgument,
    after_round: Annotated[
        int | None, typer.Option("--round", help="After this one, from 0 on; the newest if none.")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Those that did best on the held-out rows.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write.")] = None,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the parameters (safetensors) to a file and check their digest."""
    if best and after_round is not None:
        raise Refused("--best and --round name two checkpoints: leave one out")
    with find_endpoint(market, token, data).market() as client:
        if best and (after_round := client.job(job).best_round) is None:
            raise Refused(f"job {job} has measured no parameters on held-out rows: leave out --best")
        path = check_writable(output or Path(f"{job}-{'newest' if after_round is None else after_round}.safetensors"))
        digest = client.download(job, path, after_round)
    told_json = {"path": str(path), "digest": digest}
    print_json(told_json) if as_json else echo_text(f"{path}  {digest}")


@app.command()
def checkpoints(
    job: JobArgument, market: MarketOption = None, data: DataOption = None, as_json: JsonOption = False
) -> None:
    """List the digest of the parameters after each round, their metrics, and which are stored."""
    with find_endpoint(market, None, data).market() as client:
        found = list(client.checkpoints(job))
    if as_json:
        print_json(found)
        return
    table = Table("round", Column("parameters", no_wrap=True), "metrics", "kept")
    for one in found:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in (one.metrics or {}).items())
        kept = "best" if one.best else "yes" if one.stored else ""
        table.add_row(str(one.round), one.parameters, escape(metrics), kept)
    terminal.print_table(table, ShownConsole())


def _print_job(job: JobView, token: TokenUnit) -> None:
    costs = job.costs
    lines = [("job", f"{job.id}  {job.name}"), ("state", job.state), ("why", job.reason)]
    lines += progress.list_job_figures(job, token)
    lines += [("price", token.text(costs.price)), ("at most", token.text(costs.at_most))]
    lines += [("deposited", token.text(costs.deposited)), ("refunded", token.text(costs.refunded))]
    lines += [("locked pay", job.vest.text(token))] if job.vest else []
    lines += [("parameters", job.parameters or ""), ("on-chain job", str(job.chain_job or ""))]
    lines += [("checks", job.checks), ("tags", " ".join(job.tags)), ("note", job.note), ("who sees it", job.notice)]
    for name, value in lines:
        if value:
            echo_text(f"{name:>12}  {replace_controls(value)}")
