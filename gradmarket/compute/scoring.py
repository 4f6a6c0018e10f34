"""An auditor's measurement when no answers can be compared: where a small step along a gradient lowers the loss."""

from collections.abc import Sequence

from gradmarket.compute.executor import Executor
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.norm import move_along_gradient
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.rules.loss_change_test import Change, compute_change
from gradmarket.market.terms import Hash
from gradmarket.market.wire.audits import OTHER_DRAWS


def compute_loss_changes(
    bench: Executor, publication: Publication, offer: Offer, seed: Hash, payloads: Sequence[bytes]
) -> list[Change]:
    """Returns the loss change of each payload for this offer; `seed` draws the other rows.

    Raises as Executor.work does.
    """
    state, draws = bench.draws(publication, offer, seed, OTHER_DRAWS)

    def losses(at: Arrays) -> list[float]:
        return [bench.loss(publication, at, draw) for draw in draws]

    before = losses(state)
    gradients = [bench.gradient(publication, offer, payload) for payload in payloads]
    return [compute_change(before, losses(move_along_gradient(state, gradient))) for gradient in gradients]
