"""`gradmarket job ledger`: every move of a job's money, in double entry, and whether it balances."""

import csv
import sys
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Column, Table

from gradmarket.commands.edge import DataOption, JobArgument, JsonOption, MarketOption, say_json, told
from gradmarket.endpoint import find
from gradmarket.money import TokenUnit

FIELDS: Final = ("kind", "debit", "credit", "amount", "worker", "task", "replica", "batch", "tx", "block")


def ledger(
    job: JobArgument,
    market: MarketOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The entries as CSV, amounts in smallest units.")] = False,
) -> None:
    """A job's books at a named block. Ends with 1 where they do not add up to the contract's figures."""
    with told(), find(market, None, data).market() as client:
        report, token = client.ledger(job), TokenUnit.of(client.chain())
    if as_json:
        say_json(report)
    elif as_csv:
        _write(report["items"])
    else:
        _print(report, token)
    raise typer.Exit(0 if report["books"]["balanced"] else 1)


def _write(entries: list[dict[str, Any]]) -> None:
    sheet = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    sheet.writeheader()
    sheet.writerows(entries)


def _print(found: dict[str, Any], token: TokenUnit) -> None:
    """Prints the sums by kind and the accounts; single entries are for --csv and --json."""
    sums: dict[str, tuple[int, int]] = {}
    for entry in found["items"]:
        count, units = sums.get(entry["kind"], (0, 0))
        sums[entry["kind"]] = (count + 1, units + int(entry["amount"]))
    moves = Table("move", Column("entries", justify="right"), Column("amount", justify="right"))
    for kind, (count, units) in sums.items():
        moves.add_row(kind, str(count), token.text(units))
    accounts = Table(Column("account", no_wrap=True), Column("debits less credits", justify="right"))
    for name, units in found["books"]["accounts"].items():
        accounts.add_row(name, _signed(int(units), token))
    console = Console()
    console.print(moves, accounts)
    console.print(_verdict(found), soft_wrap=True)


def _signed(units: int, token: TokenUnit) -> str:
    return f"{'-' if units < 0 else ''}{token.text(abs(units))}"


def _verdict(found: dict[str, Any]) -> str:
    if found["block"] is None:
        return "The job is not on-chain yet."
    if found["books"]["balanced"]:
        return f"The books add up to the contract's figures at block {found['block']}."
    return f"The books do NOT add up at block {found['block']}: {'; '.join(found['books']['differences'])}"
