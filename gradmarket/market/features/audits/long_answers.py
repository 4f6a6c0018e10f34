"""Finds merged answers that are far longer than their round's others; each is audited for certain.

`norm_bound` has to admit every honest gradient of a job, so that a lie may be a thousand times as long as the others of
its round. A few of these, never drawn for an audit, would spoil the model for good. Where the workers are honest, the
longest gradient of a round is rarely four times as long as half of them.
"""

from collections.abc import Mapping
from statistics import median
from typing import Final

LONGEST: Final = 4.0
"""Times the median of the round's norms. An answer longer than that is audited."""


def list_long_answers(norms: Mapping[str, float]) -> list[str]:
    """Returns the tasks whose answers are long; `norms`: the L2 norms of a round's merged gradients, by task.

    Of one or two tasks none is.
    """
    usual = median(norms.values()) if norms else 0.0
    return [task for task, norm in norms.items() if norm > LONGEST * usual]
