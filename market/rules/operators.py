"""Who stands behind a worker, and on whom its answers tell.

A worker is its own operator. Several are one only where the key of their payout address signed for each of them
(messages.Consent): naming an address is no proof of standing behind it. A record is a key's: a wallet's, or an
operator's, which are addresses alike.

- What is found wrong of a worker tells on its wallet and on the operator that it answered for: both are barred, and
  both lose what they had. So do its strikes. A worker gets no work while either is barred or suspended.
- What is found right counts for the operator alone. Were it counted for the wallet too, wallets could leave with a
  second copy of one record.
- Who joins brings its wallet's bar, which keeps that wallet from work and nobody else of its operator.
- Who leaves takes the bar that its operator has by then along, on its wallet: to leave unbars nobody.

The attacks this stops. *A stranger's claim*: who names another's payout address reaches neither its record nor its
bar. *Another payout*: the wallet stays barred. *Another key a day*: a new key has no record, as a new wallet has none.
"""

from collections.abc import Iterable, Set
from typing import Final

from gradmarket.market.rules.assignment import Party

LINKS: Final = ("worker", "operator", "payout")
"""By any of these two answers may be one party's."""


def operator_of(worker: str, payout: str, consented: bool) -> str:
    """`consented`: the payout address signed that the worker is its own."""
    return payout if consented else worker


def answerable(parties: Iterable[Party]) -> set[str]:
    """On whom it tells that these answered wrongly."""
    return {key for party in parties for key in (str(party.worker), party.operator)}


def barred(party: Party, keys: Set[str]) -> bool:
    """Whether the worker gets no work, with these keys barred, or suspended."""
    return not keys.isdisjoint(answerable([party]))


def after_leaving(own: float | None, operators: float | None) -> float | None:
    """Since when a wallet is barred that leaves an operator; None: neither of the two is."""
    return max((since for since in (own, operators) if since is not None), default=None)


def separate(parties: Iterable[Party]) -> int:
    """How many are surely apart: whom one wallet, operator or payout address links counts once."""
    groups: list[set[str]] = []
    for party in parties:
        names = {str(getattr(party, link)) for link in LINKS}
        linked = [group for group in groups if group & names]
        groups = [group for group in groups if not group & names]
        groups.append(names.union(*linked))
    return len(groups)
