"""What names the wrong answer that a worker is accused of, on the chain and in its evidence.

    event = H("accusation", offer, sealed, root, found)

`sealed` is what the worker committed to under its signature, `root` the answer that opened it, `found` what the auditor
computed twice. All of them are published with the task, so who decides a contested case holds a signed answer in its
hands, and needs to compute the task once to say which root is right. The contract takes each event of a worker once:
one lie is slashed once, however often it is told of.
"""

from gradmarket.market.rules.secrets import tagged
from gradmarket.market.terms import Hash


def event(offer: Hash, sealed: Hash, root: Hash, found: Hash) -> Hash:
    return tagged("accusation", offer, sealed, root, found)
