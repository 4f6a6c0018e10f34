"""Shamir's secret sharing (Shamir 1979, "How to share a secret") over the integers modulo 2^255 - 19.

A secret and a share are 32 bytes. The libraries that offer this draw their polynomials themselves, or split 16 bytes or
single bytes at a time: here the coefficients are arguments, so that a holder that starts again deals the same shares.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from gradmarket.market.errors import Refused

PRIME: Final = 2**255 - 19
WIDTH: Final = 32
"""Bytes of a share, little-endian."""
SECRET: Final = 31
"""Bytes of a secret."""


def split_secret(secret: bytes, coefficients: Sequence[int], points: Sequence[int]) -> list[bytes]:
    """Returns the value at each point of the polynomial secret + a_1 x + a_2 x^2 + …: any len(a) + 1 give the secret.

    The coefficients are uniform modulo PRIME and secret; points are distinct and not 0.
    """
    descending = [*reversed(coefficients), int.from_bytes(secret, "little")]
    shares = []
    for point in points:
        value = 0
        for coefficient in descending:
            value = value * point + coefficient  # points are small: one reduction at the end costs less than one a term
        shares.append((value % PRIME).to_bytes(WIDTH, "little"))
    return shares


def combine_shares(shares: Mapping[int, bytes]) -> bytes:
    """Returns the secret from shares by their points, exactly as many as the threshold.

    Raises Refused where no secret has such shares.
    """
    # Lagrange's weights at 0: the product of x_j / (x_j - x_i) over all j but i, modulo PRIME
    points = list(shares)
    above, below = [], []
    for own in points:
        numerator, denominator = 1, 1
        for other in points:
            if other != own:
                numerator, denominator = numerator * other % PRIME, denominator * (other - own) % PRIME
        above.append(numerator)
        below.append(denominator)
    weights = [n * inverse % PRIME for n, inverse in zip(above, _compute_inverses(below), strict=True)]
    total = sum(w * int.from_bytes(share, "little") for w, share in zip(weights, shares.values(), strict=True))
    secret = total % PRIME
    if secret >> (8 * SECRET):
        raise Refused("the shares are not of one secret")
    return secret.to_bytes(SECRET, "little")


def _compute_inverses(values: Sequence[int]) -> list[int]:
    """Returns the inverses of all values by one inversion (Montgomery 1987)."""
    products = list(accumulate(values, lambda left, right: left * right % PRIME, initial=1))
    inverse, found = pow(products[-1], -1, PRIME), []
    for value, before in zip(reversed(values), reversed(products[:-1]), strict=True):
        found.append(inverse * before % PRIME)
        inverse = inverse * value % PRIME
    return found[::-1]
