"""Decides which operator stands behind a worker, and which records a worker's answers affect.

A worker is its own operator. Several workers have one operator only where the key of their payout address signed for
each of them (messages.SignedConsent); naming an address proves nothing. A record belongs to a key: a wallet's or an
operator's, and both are addresses.

- A wrong answer of a worker affects its wallet and the operator that it answered for: both are barred, and both lose
  their evidence. The same holds for its strikes. A worker gets no work while either is barred or suspended.
- A right answer counts for the operator alone. If it counted for the wallet too, a leaving wallet would keep a second
  copy of one record.
- A worker that joins an operator keeps its wallet's bar. This bars that wallet and nobody else of its operator.
- A worker that leaves takes its operator's bar of that time with it, on its wallet: leaving lifts no bar.

The attacks this stops. *A stranger's claim*: naming another's payout address affects neither its record nor its bar.
*Another payout*: the wallet stays barred. *Another key a day*: a new key has no record, as a new wallet has none.
"""

from collections.abc import Iterable, Set

from gradmarket.market.rules.assignment import Party


def operator_of(worker: str, payout: str, consented: bool) -> str:
    """Returns a worker's operator. `consented`: the payout address signed that the worker is its own."""
    return payout if consented else worker


def list_answerable_keys(parties: Iterable[Party]) -> set[str]:
    """Returns the keys whose records are affected where these parties answered wrongly."""
    return {key for party in parties for key in (str(party.worker), party.operator)}


def is_barred(party: Party, keys: Set[str]) -> bool:
    """Returns whether the worker gets no work, given the keys that are barred or suspended."""
    return not keys.isdisjoint(list_answerable_keys([party]))
