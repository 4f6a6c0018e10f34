"""The owner's view on a terminal; the same tables in plain text without one."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradmarket.market.printable import replace_controls
from worker.features.owner_page.elsewhere import Elsewhere
from worker.features.owner_page.own_facts import OwnFacts
from worker.features.owner_page.sentences import build_headline, list_own_tables, list_warnings


def draw_own_view(own: OwnFacts, elsewhere: Elsewhere) -> RenderableType:
    headline = _draw_plain_text(build_headline(own), "bold" if own.running else "bold yellow")
    warnings = [_draw_plain_text(line, "bold red") for line in list_warnings(own, elsewhere)]
    sums = [(one.symbol, *map(one.text, (one.today, one.last_hour, one.total, one.redeemed))) for one in own.earnings]
    earned = _draw_table("Earned", ("token", "today", "last hour", "in all", "redeemed"), sums)
    per_kwh = [
        Text(f"{one.text(one.per_kwh)} a kWh of its cards, by the last hour")
        for one in own.earnings
        if one.per_kwh is not None
    ]
    counts = Text(f"{own.accepted} accepted, {own.rejected} rejected, {own.unpaid} accepted and not paid yet")
    tables = [
        _draw_table(shown.title, shown.head, shown.rows) if shown.rows else Text(shown.none, style="dim")
        for shown in list_own_tables(own, elsewhere)
    ]
    return Group(headline, *warnings, earned, *per_kwh, counts, *tables)


def _draw_table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(
        *head, title=title, box=None, pad_edge=False, title_justify="left", title_style="bold", header_style="dim"
    )
    for row in rows:
        table.add_row(*map(_draw_plain_text, row))
    return table


def _draw_plain_text(text: str, style: str = "") -> Text:
    """Returns untrusted words as text: they are no markup, and control no terminal."""
    return Text(replace_controls(text), style=style)
