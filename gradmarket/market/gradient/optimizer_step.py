"""How a job updates its model: named in the job, checked where it is written, applied by `round_update`."""

from dataclasses import dataclass
from typing import Any

from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.optimizers import OptimizerRule


@dataclass(frozen=True)
class OptimizerStep:
    """How a job updates its model: optimizer, settings, and the norm that gradients are clipped to (None: not).

    downlink: the codec of the updates that rounds publish (published_update); None: they publish whole parameters.
    """

    optimizer: OptimizerRule
    settings: Any
    clip: float | None = None
    downlink: Codec | None = None
