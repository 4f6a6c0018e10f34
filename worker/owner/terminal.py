"""The owner's view on a terminal; the same tables in plain text where there is none."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradmarket.worker.owner.elsewhere import Elsewhere
from gradmarket.worker.owner.own_facts import OwnFacts
from gradmarket.worker.owner.sentences import doing, headline, record, redeem_by, warnings


def drawn(own: OwnFacts, elsewhere: Elsewhere) -> RenderableType:
    return Group(*_parts(own, elsewhere))


def _parts(own: OwnFacts, elsewhere: Elsewhere) -> Iterator[RenderableType]:
    yield Text(headline(own), style="bold" if own.running else "bold yellow")
    for line in warnings(own, elsewhere):
        yield _plain(line, "bold red")
    sums = ("today", "last hour", "in all", "redeemed")
    yield _table(
        ("earned", *sums),
        [(one.symbol, *map(one.text, (one.today, one.last_hour, one.total, one.redeemed))) for one in own.earnings],
    )
    yield Text(f"{own.accepted} accepted, {own.rejected} rejected, {own.unpaid} accepted and not paid yet")
    yield _table(
        ("in hand", "round", "doing", "for", "pays"),
        [(one.replica, str(one.round), one.doing, doing(one, own.at), one.pay_text) for one in own.in_hand],
    )
    owed = [(one.job, one.text, redeem_by(one, own.at)) for one in elsewhere.unredeemed]
    yield _table(("to redeem, by job", "amount", "until"), owed)
    yield _table(("market", "record"), [(one.market, record(one)) for one in elsewhere.markets])
    yield _table(("stake", "at risk"), [(f"job {one.chain_job}", one.text()) for one in elsewhere.stakes])
    rejected = [(_clock(one.at), one.reason or "no reason was given", one.evidence) for one in own.rejections]
    yield _table(("rejected", "why", "evidence"), rejected)


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment).strftime("%H:%M:%S")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> RenderableType:
    """Draws a table; nothing where it has no rows."""
    table = Table(*head, box=None, pad_edge=False, title_justify="left", header_style="dim")
    for row in rows:
        table.add_row(*map(_plain, row))
    return table if table.row_count else Group()


def _plain(text: str, style: str = "") -> Text:
    """Returns words that may be a stranger's: they are no markup, and control no terminal."""
    return Text("".join(letter if letter.isprintable() else "?" for letter in text), style=style)
