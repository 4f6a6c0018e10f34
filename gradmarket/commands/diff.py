"""`gradmarket job diff`: the fields in which two jobs differ."""

import json
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from gradmarket import terminal
from gradmarket.commands.edge import DataOption, JsonOption, MarketOption, print_json
from gradmarket.endpoint import find_endpoint
from gradmarket.market.admissible import list_differences
from gradmarket.market.printable import replace_controls
from gradmarket.terminal import ShownConsole, echo_text


def diff(
    first: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    second: Annotated[str, typer.Argument(metavar="OTHER", help="The other's.")],
    market: MarketOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """The fields in which two jobs differ, as they were posted and completed."""
    with find_endpoint(market, None, data).market() as client:
        views = [client.job(job) for job in (first, second)]
    found = list_differences([view.model_dump(mode="json")["spec"] for view in views])
    if as_json:
        print_json(found)
        return
    if not found:
        echo_text("They are alike in every field.")
        return
    table = Table(Column("field", no_wrap=True), *(Column(view.id, overflow="fold") for view in views))
    for path, values in found.items():
        table.add_row(escape(path), *(escape(replace_controls(show_value(value))) for value in values))
    terminal.print_table(table, ShownConsole())


def show_value(value: Any) -> str:
    """Writes a field's value as a job file has it, a text without quotes; a dash where the job does not have it."""
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)
