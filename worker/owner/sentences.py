"""The owner's view in words, the same on the terminal and on the page."""

from collections.abc import Iterator
from datetime import datetime

from gradmarket.worker.owner.elsewhere import Elsewhere, MarketRecord, Unredeemed
from gradmarket.worker.owner.own_facts import InHand, OwnFacts


def headline(own: OwnFacts) -> str:
    works = "works" if own.running else "does not run: what follows is what it left"
    return f"Worker {own.address} {works}. Its folder: {own.folder}"


def warnings(own: OwnFacts, elsewhere: Elsewhere) -> Iterator[str]:
    """Yields what its owner should know first: accusations, an end of claims that is near, broken promises."""
    for case in elsewhere.accusations:
        yield case.text()
    for market in elsewhere.markets:
        if market.barred:
            yield f"{market.market} gives this worker no work: an audit of its work, or its operator's, failed."
    for line in own.grievances:
        yield f"A requester broke a rule: {line}"
    yield from elsewhere.troubles


def doing(held: InHand, now: float) -> str:
    """Returns how long it takes already, and how much of its time is left."""
    left = span(held.due - now) + " left" if held.due > now else "over its time"
    return f"{span(now - held.since)}, {left}"


def redeem_by(owed: Unredeemed, now: float) -> str:
    """Returns when the claims end; the worker redeems before by itself, `wallet redeem` at any time."""
    if owed.until is None:
        return "not known: the chain does not answer"
    if owed.until <= now:
        return "its claims are over"
    return f"{datetime.fromtimestamp(owed.until):%Y-%m-%d %H:%M} (in {span(owed.until - now)})"


def record(market: MarketRecord) -> str:
    if market.trouble:
        return f"not known: {market.trouble}"
    words = [
        f"{one.determinism_class}: {one.passed} audits passed, {one.failed} failed, at least {one.standing:.0%} honest"
        for one in market.records
    ] or ["no audit of its work has ended yet"]
    words += [f"no work of job {job} for a while: it owed answers there" for job in market.suspended]
    return "; ".join(["barred", *words] if market.barred else words)


def span(seconds: float) -> str:
    """Writes a duration as people say it: "40 s", "12 min", "3.5 h", "2 d"."""
    for size, name in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{max(0.0, seconds):.0f} s"
