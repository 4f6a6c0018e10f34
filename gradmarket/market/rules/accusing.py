"""Identifies the wrong answer that a worker is accused of, on the chain and in its evidence.

    event = H("accusation", offer, sealed, root, found)

`sealed` is the commitment that the worker signed, `root` the answer that opened it, `found` what the auditor computed
twice. All of them are published with the task. So whoever decides a contested case has a signed answer, and computes
the task once to see which root is right. The contract accepts each event of a worker once: a lie is slashed once,
however often it is reported.
"""

from gradmarket.market.digests import domain_hash
from gradmarket.market.terms import Hash


def compute_accusation_event(offer: Hash, sealed: Hash, root: Hash, found: Hash) -> Hash:
    """Returns the digest of an accusation."""
    return domain_hash("accusation", offer, sealed, root, found)
