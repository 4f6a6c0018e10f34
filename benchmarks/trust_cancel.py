"""Units that stay locked a minute after a cancel, by what binds the deposit (`trust.cancel.*`).

Played on the service's own stages over a chain of its own, by the clock of the play. The contract keeps what an open
audit may still award, and what is reserved for workers that are gone: neither is counted, both stand in the note.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks.figure import Figure
from benchmarks.size import sized
from tests.attacks.scene import funded
from tests.chain.test_cancelled import (
    ask_in_a_made_up_class,
    cancel,
    join_with_deposits,
    open_markets_on,
    outvote,
    seal_half,
)
from tests.databases import new_sqlite
from tests.requester.market_fixture import PRICE

PREFIX: Final = "trust.cancel."
BOUND: Final = sized(
    {
        "open_audit": outvote,
        "panel": seal_half,
        "deposits": join_with_deposits,
        "made_up_class": ask_in_a_made_up_class,
    },
    {"open_audit": outvote},
)


def measure() -> Iterator[Figure]:
    with funded() as (_, _, ledger), open_markets_on(ledger, new_sqlite) as new_market:
        for name, bind in BOUND.items():
            market, kept = bind(new_market)
            seconds = cancel(market, ledger, kept)
            chain_job = market.the_job().chain_job or 0
            locked, held = ledger.free(chain_job) - kept, ledger.job(chain_job).reserved
            note = f"after {seconds:.0f} s; an audit may award {kept / PRICE:.0f}, {held / PRICE:.0f} are reserved"
            yield Figure(f"{PREFIX}{name}.locked", locked / PRICE, "prices", target="<= 0", note=note)
