"""`gradmarket verdict check`: replays a verdict from the evidence that the service publishes."""

from typing import Annotated

import typer

from gradmarket.commands.edge import DataOption, JobArgument, JsonOption, MarketOption, print_json
from gradmarket.endpoint import find_endpoint
from gradmarket.market.features.verify import VerdictCase, list_case_faults
from gradmarket.market.signing import parse_typed_address
from gradmarket.terminal import echo_text

app = typer.Typer(no_args_is_help=True, help="Check a verdict by its evidence.")


@app.callback()
def verdict() -> None:
    """Check verdicts by their evidence."""


@app.command("check")
def check_command(
    job: JobArgument,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id, as the verdict names it.")],
    market: MarketOption = None,
    signer: Annotated[
        str | None, typer.Option(help="The required signer; by default the one that /v1/chain names.")
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay a task's verdicts: signatures, seals, secrets, votes, and the draw of audits; ends with 1 at a fault."""
    given = parse_typed_address(signer) if signer else None
    with find_endpoint(market, None, data).market() as client:
        facts, publication = client.chain(), client.publication(job)
        evidence = client.task(job, task)
    case = VerdictCase(facts.domain, given or facts.signer, publication.checks, evidence)
    problems = list(map(str, list_case_faults(case)))
    if as_json:
        print_json({"task": task, "proven": not problems, "faults": problems})
    else:
        for fault in problems:
            echo_text(fault)
        word = f"{len(problems)} faults" if problems else "proven"
        echo_text(f"{word}: {case.tally}; the task is {case.evidence.state}")
    raise typer.Exit(1 if problems else 0)
