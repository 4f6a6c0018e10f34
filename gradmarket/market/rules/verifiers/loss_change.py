"""`loss_change`: no two machines give the same answer, so a single replica's root is accepted, and audits score it.

Ballots are those of `exact`. No single task decides whether to trust an operator: features.loss_change evaluates all
its scores together.
"""

from typing import Final

from gradmarket.market.rules.verifiers.exact import ballot, groups

SKETCHED: Final = False
SCORED: Final = True
__all__ = ["SCORED", "SKETCHED", "ballot", "groups"]
