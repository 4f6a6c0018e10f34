"""`loss_change`: nobody gives the same answer again. One replica's root stands by itself, and its audits are scores.

Ballots are those of `exact`. Who is believed is no matter of one task: market.rules.loss_change looks at all of an
operator's scores together.
"""

from typing import Final

from gradmarket.market.rules.verifiers.exact import ballot, groups

SKETCHED: Final = False
SCORED: Final = True
__all__ = ["SCORED", "SKETCHED", "ballot", "groups"]
