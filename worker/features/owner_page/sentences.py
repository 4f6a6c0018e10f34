"""The owner's view in words, the same on the terminal and on the page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from gradmarket.pages import format_duration
from worker.features.owner_page.elsewhere import Elsewhere
from worker.features.owner_page.own_facts import OwnFacts


@dataclass(frozen=True)
class OwnTable:
    """`none` is shown in place of `rows` that are empty."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    none: str


def build_headline(own: OwnFacts) -> str:
    works = "works" if own.running else "does not run: these are its last records"
    return f"Worker {own.address} {works}. Its folder: {own.folder}"


def list_warnings(own: OwnFacts, elsewhere: Elsewhere) -> Iterator[str]:
    """Yields the most important facts for its owner: accusations, a market without work for it, broken promises."""
    for case in elsewhere.accusations:
        yield case.text()
    for market in elsewhere.markets:
        if market.barred:
            yield f"{market.market} gives this worker no work: an audit of its work, or its operator's, failed."
    for line in own.grievances:
        yield f"A requester broke a rule: {line}"
    yield from elsewhere.troubles


def list_own_tables(own: OwnFacts, elsewhere: Elsewhere) -> Iterator[OwnTable]:
    cards = list[tuple[str, ...]]()
    for card in own.cards:
        figures = ((card.percent, "%"), (card.watts and round(card.watts), " W"), (card.celsius, " °C"))
        shown = ("not known" if value is None else f"{value}{unit}" for value, unit in figures)
        cards.append((card.name, *shown, "not known" if card.free is None else f"{card.free / 2**30:.1f} GiB"))
    if cards:
        yield OwnTable("Cards", ("card", "in use", "draws", "warm", "free"), cards, "")
    held = list[tuple[str, ...]]()
    for one in own.in_hand:
        left = format_duration(one.due - own.at) + " left" if one.due > own.at else "over its time"
        spent = f"{format_duration(own.at - one.since)}, {left}"
        held.append((one.replica, str(one.round), one.doing, spent, one.pay_text))
    yield OwnTable("In hand", ("task", "round", "doing", "for", "pays"), held, "No task is in hand.")
    owed = list[tuple[str, ...]]()
    for due in elsewhere.unredeemed:
        ends = "they are over"
        if due.until is None:
            ends = "not known: the chain does not answer"
        elif due.until > own.at:
            ends = f"{datetime.fromtimestamp(due.until):%Y-%m-%d %H:%M} (in {format_duration(due.until - own.at)})"
        owed.append((due.job, due.text, ends))
    yield OwnTable("To redeem", ("job", "amount", "claims end"), owed, "Everything that is vouchered is redeemed.")
    markets = list[tuple[str, ...]]()
    for market in elsewhere.markets:
        known = [
            f"{by.determinism_class}: {by.passed} audits passed, {by.failed} failed, at least {by.standing:.0%} honest"
            for by in market.records
        ] or ["no audit of its work has ended yet"]
        known += [f"no work of job {job} for a while: it owed answers there" for job in market.suspended]
        words = ["barred", *known] if market.barred else known
        markets.append((market.market, f"not known: {market.trouble}" if market.trouble else "; ".join(words)))
    yield OwnTable("Record", ("market", "its record of this worker"), markets, "No market was asked yet.")
    stakes = [(f"{one.chain_job} of chain {one.chain_id}", one.text()) for one in elsewhere.stakes]
    yield OwnTable("Stake", ("job", "at risk"), stakes, "Nothing is at stake.")
    rejected = [
        (datetime.fromtimestamp(one.at).strftime("%H:%M:%S"), one.reason or "no reason was given", one.evidence)
        for one in own.rejections
    ]
    yield OwnTable("Rejected", ("at", "why", "evidence"), rejected, "Nothing was rejected in the last 24 hours.")
