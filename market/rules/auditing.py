"""Which accepted tasks are run again by somebody trusted, how often, and what makes that enough.

    audited  <=>  H("audit", link, offer, root) < p * 2^256
    p = max(floor, 1 - tolerated / (1 - standing), least rate that the free stake covers)

`link` is the last link of the task's own hash chain (rules.secrets), whose anchor stands in the signed offer before
anybody is drawn for it; it is opened once the draw tells nobody anything any more. So no worker can tell an audited
task from another while it computes, and the requester can choose neither whom it audits nor, afterwards, whom it has
audited.

The attack this stops is the *silent quorum*: workers that act as one and cheat only where they hold the majority are
never seen by votes. The second term keeps (1 - p) * (1 - standing), the wrong gradients that pass for all that the
worker's record says, at most `tolerated`; the floor is what no reputation lowers, or a *sleeper* would wait for it.

When an audit fails, what else of that operator is not final is audited too. Where a task is final once its operator has
had `window` further tasks accepted, (1 - p)^window of the lies of a worker that lies always get so far.
"""

import math
from typing import Final

from gradmarket.market.rules import exposure
from gradmarket.market.rules.secrets import tagged
from gradmarket.market.terms import Hash

WHOLE: Final = 2**256


def drawn(link: Hash, offer: Hash, root: Hash, rate: float) -> bool:
    """Whether the task `offer`, accepted with the payload `root`, is audited."""
    return int.from_bytes(tagged("audit", link, offer, root), "big") < int(rate * WHOLE)


def passes(accepted: str, found: str, before: str | None) -> bool | None:
    """Whether the accepted root holds against the root that the auditor found; none where it is to run it once more.

    An auditor errs too, and a conviction costs a record and a stake: who convicts has found the same twice.
    """
    if found == accepted:
        return True
    return False if found == before else None


def rate(standing: float, cover: float, floor: float, tolerated: float, gain: float) -> float:
    """How often a worker's accepted tasks are audited. `cover` and `gain` are in prices (rules.exposure)."""
    doubt = 1.0 - standing
    by_record = 1.0 - tolerated / doubt if doubt > tolerated else 0.0
    return min(1.0, max(floor, by_record, exposure.least_rate(cover, gain)))


def deterring(saved: float, benefit: float, at_risk: float) -> float:
    """The audit rate above which cheating costs more than it gains: (c + B) / S. Infinite where nothing is at risk.

    c is what not computing saves, B what a wrong gradient is worth to a worker besides, S the stake that it loses;
    pay that was redeemed is not at risk. (Becker 1968; Belenkiy et al. 2008, "Incentivizing outsourced computation".)
    """
    return (saved + benefit) / at_risk if at_risk > 0.0 else math.inf


def escaping(rate: float, window: int, share: float = 1.0) -> float:
    """Of the wrong gradients of a worker that answers this share wrongly, those that become final: (1 - p)^(share * W).

    One that lies rarely is caught as surely for each lie, but what it spoiled before has become final more often.
    """
    return math.pow(1.0 - rate, max(1.0, share * window))


def compute(rate: float, cheating: float, window: int, tasks: int) -> float:
    """Computations for each accepted gradient where proven workers do `tasks` each and this share of them lies always.

    1 + p for the audits; and each liar, once caught, costs the 1 / p gradients that are done again and the window that
    is audited: cheating * (window + 1 / p) / tasks.
    """
    return 1.0 + rate + cheating * (window + 1.0 / rate) / tasks
