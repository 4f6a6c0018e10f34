"""The owner's view in words, the same on the terminal and on the page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from gradmarket.pages import format_duration
from graphdoc.runner.driver import CardLoad
from worker.features.owner_page.elsewhere import Elsewhere, MarketRecord, Unredeemed
from worker.features.owner_page.own_facts import InHand, OwnFacts


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
    held = [
        (one.replica, str(one.round), one.doing, _describe_time_left(one, own.at), one.pay_text) for one in own.in_hand
    ]
    if own.cards:
        yield OwnTable("Cards", ("card", "in use", "draws", "warm", "free"), [*map(_describe_card, own.cards)], "")
    yield OwnTable("In hand", ("task", "round", "doing", "for", "pays"), held, "No task is in hand.")
    owed = [(one.job, one.text, _redeem_by(one, own.at)) for one in elsewhere.unredeemed]
    yield OwnTable("To redeem", ("job", "amount", "claims end"), owed, "Everything that is vouchered is redeemed.")
    markets = [(one.market, _describe_market_record(one)) for one in elsewhere.markets]
    yield OwnTable("Record", ("market", "its record of this worker"), markets, "No market was asked yet.")
    stakes = [(f"{one.chain_job} of chain {one.chain_id}", one.text()) for one in elsewhere.stakes]
    yield OwnTable("Stake", ("job", "at risk"), stakes, "Nothing is at stake.")
    rejected = [
        (datetime.fromtimestamp(one.at).strftime("%H:%M:%S"), one.reason or "no reason was given", one.evidence)
        for one in own.rejections
    ]
    yield OwnTable("Rejected", ("at", "why", "evidence"), rejected, "Nothing was rejected in the last 24 hours.")


def _describe_card(card: CardLoad) -> tuple[str, ...]:
    figures = ((card.percent, "%"), (card.watts and round(card.watts), " W"), (card.celsius, " °C"))
    free = "not known" if card.free is None else f"{card.free / 2**30:.1f} GiB"
    return card.name, *("not known" if value is None else f"{value}{unit}" for value, unit in figures), free


def _describe_time_left(held: InHand, now: float) -> str:
    """Returns the time spent on it, and the rest of its time."""
    left = format_duration(held.due - now) + " left" if held.due > now else "over its time"
    return f"{format_duration(now - held.since)}, {left}"


def _redeem_by(owed: Unredeemed, now: float) -> str:
    if owed.until is None:
        return "not known: the chain does not answer"
    if owed.until <= now:
        return "they are over"
    return f"{datetime.fromtimestamp(owed.until):%Y-%m-%d %H:%M} (in {format_duration(owed.until - now)})"


def _describe_market_record(market: MarketRecord) -> str:
    if market.trouble:
        return f"not known: {market.trouble}"
    words = [
        f"{one.determinism_class}: {one.passed} audits passed, {one.failed} failed, at least {one.standing:.0%} honest"
        for one in market.records
    ] or ["no audit of its work has ended yet"]
    words += [f"no work of job {job} for a while: it owed answers there" for job in market.suspended]
    return "; ".join(["barred", *words] if market.barred else words)
