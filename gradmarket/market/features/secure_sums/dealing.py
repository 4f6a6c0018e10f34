"""Shares of a holder's two secrets for its neighbours: dealt, sealed, and opened."""

from collections.abc import Mapping
from typing import Final

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import Aggregation, secret_sharing
from gradmarket.market.features.secure_sums.key_agreement import Secrets, ShareChannel, compute_mark
from gradmarket.market.features.secure_sums.sum_messages import SealedShares
from gradmarket.market.terms import Hash

SELF: Final = b"self share"
MASK: Final = b"mask share"
SEED: Final = b"self seed"
"""The names under which shares, and the seed of a holder's own mask, are marked."""


def deal_shares(
    aggregation: Aggregation, number: int, secrets: Secrets, channels: Mapping[int, bytes]
) -> list[SealedShares]:
    """Returns the holder's shares for each neighbour, sealed by the secret of their channel."""
    receivers, places, degree = list(channels), aggregation.points[number], aggregation.plan.threshold - 1
    points = [places[receiver] for receiver in receivers]
    own = secret_sharing.split_secret(secrets.self_seed, secrets.derive_coefficients(SELF, degree), points)
    pair = secret_sharing.split_secret(secrets.mask_seed, secrets.derive_coefficients(MASK, degree), points)
    sealed = []
    for receiver, shares in zip(receivers, zip(own, pair, strict=True), strict=True):
        self_mark, mask_mark = _compute_marks(shares, aggregation.digest)
        channel = ShareChannel(aggregation.digest, channels[receiver], number, receiver)
        box = channel.seal_shares(shares, self_mark + mask_mark)
        sealed.append(SealedShares(sender=number, receiver=receiver, self_mark=self_mark, mask_mark=mask_mark, box=box))
    return sealed


def open_shares(aggregation: Hash, channel_secret: bytes, shares: SealedShares) -> tuple[bytes, bytes] | None:
    """Returns the sender's two shares; None where they differ from the sender's marks."""
    channel = ShareChannel(aggregation, channel_secret, shares.sender, shares.receiver)
    try:
        found = channel.opened(shares.box, shares.self_mark + shares.mask_mark)
    except Refused:
        return None
    return found if _compute_marks(found, aggregation) == (shares.self_mark, shares.mask_mark) else None


def _compute_marks(shares: tuple[bytes, bytes], aggregation: Hash) -> tuple[Hash, Hash]:
    return compute_mark(shares[0], aggregation, SELF), compute_mark(shares[1], aggregation, MASK)
