"""The owner's view on a terminal; the same tables in plain text where there is none."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradmarket.market.printable import printable
from worker.owner.elsewhere import Elsewhere
from worker.owner.own_facts import OwnFacts
from worker.owner.sentences import headline, tables, warnings


def drawn(own: OwnFacts, elsewhere: Elsewhere) -> RenderableType:
    return Group(*_parts(own, elsewhere))


def _parts(own: OwnFacts, elsewhere: Elsewhere) -> Iterator[RenderableType]:
    yield _plain(headline(own), "bold" if own.running else "bold yellow")
    for line in warnings(own, elsewhere):
        yield _plain(line, "bold red")
    sums = [(one.symbol, *map(one.text, (one.today, one.last_hour, one.total, one.redeemed))) for one in own.earnings]
    yield _table("Earned", ("token", "today", "last hour", "in all", "redeemed"), sums)
    yield Text(f"{own.accepted} accepted, {own.rejected} rejected, {own.unpaid} accepted and not paid yet")
    for shown in tables(own, elsewhere):
        yield _table(shown.title, shown.head, shown.rows) if shown.rows else Text(shown.none, style="dim")


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(
        *head, title=title, box=None, pad_edge=False, title_justify="left", title_style="bold", header_style="dim"
    )
    for row in rows:
        table.add_row(*map(_plain, row))
    return table


def _plain(text: str, style: str = "") -> Text:
    """Returns words that may be a stranger's: they are no markup, and control no terminal."""
    return Text(printable(text), style=style)
