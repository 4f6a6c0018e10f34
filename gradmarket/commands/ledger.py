"""`gradmarket job ledger`: every move of a job's money, in double entry, and whether it balances."""

import csv
import sys
from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.table import Column, Table

from gradmarket import terminal
from gradmarket.commands.edge import DataOption, JobArgument, JsonOption, MarketOption, print_json
from gradmarket.endpoint import find_endpoint
from gradmarket.market.errors import NotFound
from gradmarket.market.money import TokenUnit
from gradmarket.market.printable import replace_controls
from gradmarket.market.views.payment_views import BooksView, EntryView, LedgerView
from gradmarket.terminal import ShownConsole

FIELDS: Final = ("kind", "debit", "credit", "amount", "worker", "task", "replica", "batch", "tx", "block")


def ledger(
    job: JobArgument,
    market: MarketOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The entries as CSV, amounts in smallest units.")] = False,
) -> None:
    """A job's books at a named block. Ends with 1 where they do not add up to the contract's figures."""
    with find_endpoint(market, None, data).market() as client:
        report, token = client.ledger(job), TokenUnit.of(client.chain())
        books = report.books
        if books is None:
            raise NotFound("the service sent the entries without their sums: ask again later")
    if as_json:
        print_json(report.model_dump(mode="json", exclude={"next"}))
    elif as_csv:
        _write_csv(report.items)
    else:
        _print_ledger(report, books, token)
    raise typer.Exit(0 if books.balanced else 1)


def _write_csv(entries: list[EntryView]) -> None:
    sheet = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    sheet.writeheader()
    for entry in entries:
        cells = entry.model_dump(mode="json").items()
        sheet.writerow({name: replace_controls(cell) if isinstance(cell, str) else cell for name, cell in cells})


def _print_ledger(report: LedgerView, books: BooksView, token: TokenUnit) -> None:
    """Prints the sums by kind and the accounts; single entries are for --csv and --json."""
    sums: dict[str, tuple[int, int]] = {}
    for entry in report.items:
        count, units = sums.get(entry.kind, (0, 0))
        sums[entry.kind] = (count + 1, units + int(entry.amount))
    moves = Table("move", Column("entries", justify="right"), Column("amount", justify="right"))
    for kind, (count, units) in sums.items():
        moves.add_row(kind, str(count), token.text(units))
    accounts = Table(Column("account", no_wrap=True), Column("debits less credits", justify="right"))
    for name, balance in books.accounts.items():
        accounts.add_row(escape(name), token.text(balance))
    console = ShownConsole()
    terminal.print_table(moves, console)
    terminal.print_table(accounts, console)
    balance_line = f"The books do NOT add up at block {report.block}: {'; '.join(books.differences)}"
    if report.block is None:
        balance_line = "The job is not on-chain yet."
    elif books.balanced:
        balance_line = f"The books add up to the contract's figures at block {report.block}."
    console.print(balance_line, soft_wrap=True, markup=False)
