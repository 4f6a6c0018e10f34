"""Secure aggregation: the requester learns the sum of a round's vectors and no vector of its own.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning", with each holder masking
against a few neighbours of a random graph as in Bell et al. 2020, "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead". The requester may lie. All rules are pure: entropy, keys and messages are arguments.

    holder                       requester
    1 keys, signed           ->  those of its neighbours
    2 sealed shares          ->  who shared, and the shares that are for it
    3 masked vector, signed  ->  whose vectors count
    4 signature of that set  ->  a quorum of signatures
    5 shares of one secret   ->  the sum
      of each neighbour

Holders mask along the union of random cycles through all of them, drawn from a block's hash. The hash must be of a
block after the one by which the holders were fixed, so that nobody chooses holders by the graph.

`degree` computes the number of neighbours, `holder` and `collector` have the messages and
refusals of each side. docs/secure_aggregation.md has the guarantees against each party, with the proof.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import degree
from gradmarket.market.features.secure_sums.degree import GroupPlan
from gradmarket.market.features.secure_sums.ring import Ring, ring_for
from gradmarket.market.terms import Address, Hash

Adjacency = NDArray[np.bool_]
"""bool[holders, holders], symmetric: the neighbours of each holder. None is its own."""


def draw_adjacency(beacon: Hash, job: int, round_number: int, holders: int, cycles: int) -> Adjacency:
    """Returns the graph of a round; the same for every reader of the block's hash. 0 cycles join each to each."""
    if cycles == 0:
        return ~np.eye(holders, dtype=np.bool_)
    adjacent = np.zeros((holders, holders), np.bool_)
    name = beacon + job.to_bytes(32, "big") + round_number.to_bytes(8, "big")
    stream = blake3(name, derive_key_context="gradmarket.secagg neighbours").digest(length=8 * holders * cycles)
    for keys in np.frombuffer(stream, "<u8").reshape(cycles, holders):
        order = np.argsort(keys, kind="stable")
        adjacent[order, np.roll(order, 1)] = True
    return adjacent | adjacent.T


def count_fewest_neighbours(adjacent: Adjacency, members: Adjacency) -> int:
    """Returns the least number of neighbours among the members, bool[holders], that one of the members has."""
    counts = adjacent[members][:, members].sum(axis=1)
    return int(counts.min()) if counts.size else 0


Members = NDArray[np.bool_]
"""bool[holders]: a set of holders, by number."""
_WORD: Final = 32


@dataclass(frozen=True)
class Aggregation:
    """One sum: of a round of a job, over holders in rising order of their wallets. A holder is known by its number.

    A round that could not be unmasked is done again as its next `attempt`. `start` is the digest of the other inputs of
    the vectors beside `spec` and own rows. If it differed between holders, the requester could give the others a model
    whose gradients are all zeros (Pasquini et al. 2022). `beacon` is the hash of a block after the one that fixed the
    holders; at most `corrupt` of them collude with the requester, at most `dropped` drop out; a vector has `size`
    integers, none of them beyond `most` either way.
    """

    job: int
    round: int
    attempt: int
    spec: Hash
    start: Hash
    beacon: Hash
    holders: tuple[Address, ...]
    corrupt: int
    dropped: int
    size: int
    most: int

    @cached_property
    def digest(self) -> Hash:
        """The digest to which every key, seal and signature of this aggregation is bound."""
        numbers = (
            self.job,
            self.round,
            self.attempt,
            self.corrupt,
            self.dropped,
            self.size,
            self.most,
            len(self.holders),
        )
        words = [self.spec, self.start, self.beacon, *(number.to_bytes(_WORD, "big") for number in numbers)]
        names = [bytes.fromhex(address[2:]) for address in self.holders]
        return Hash(blake3(b"".join(words + names), derive_key_context="gradmarket.secagg aggregation").digest())

    @cached_property
    def plan(self) -> GroupPlan:
        """Returns the plan. Raises Refused where this number of holders cannot be protected, or one is named twice."""
        names = [address.lower() for address in self.holders]
        if names != sorted(set(names)):
            raise Refused("the holders must be named once each, in ascending order")
        return degree.plan_group(len(self.holders), self.corrupt, self.dropped)

    @cached_property
    def adjacency(self) -> Adjacency:
        return draw_adjacency(self.beacon, self.job, self.round, len(self.holders), self.plan.cycles)

    @cached_property
    def ring(self) -> Ring:
        return ring_for(len(self.holders), self.most)

    @cached_property
    def points(self) -> tuple[Mapping[int, int], ...]:
        """For each holder its neighbours, rising, and where its polynomials are taken for each: its place, from 1."""
        rows = (np.flatnonzero(row).tolist() for row in self.adjacency)
        return tuple({other: place for place, other in enumerate(row, start=1)} for row in rows)

    def packed(self, members: Iterable[int]) -> bytes:
        """Returns a set of holders as bits."""
        mask = np.zeros(len(self.holders), np.bool_)
        mask[list(members)] = True
        return np.packbits(mask).tobytes()

    def members(self, packed: bytes) -> Members:
        """Returns the set. Raises Refused on bits of another number of holders."""
        count = len(self.holders)
        bits = np.unpackbits(np.frombuffer(packed, np.uint8))
        if bits.size != count + -count % 8 or bits[count:].any():
            raise Refused(f"a set of {count} holders has {count} bits")
        return bits[:count].astype(np.bool_)

    def check_survivors(self, sharers: Members, survivors: Members) -> None:
        """Raises Refused unless the sum over these survivors, all of them sharers, is safe and can be unmasked."""
        plan, count = self.plan, int(survivors.sum())
        if (survivors & ~sharers).any():
            raise Refused("a survivor never shared its secrets")
        if count < plan.least:
            raise Refused(f"{count} holders stayed, and a sum is of at least {plan.least}", "do the round again")
        fewest = count_fewest_neighbours(self.adjacency, survivors)
        if fewest < plan.threshold:
            raise Refused(
                f"a survivor has {fewest} neighbours that stayed, and needs {plan.threshold}", "do the round again"
            )


def set_digest(packed: bytes) -> Hash:
    """Returns the digest by which a set of holders is signed."""
    return Hash(blake3(packed, derive_key_context="gradmarket.secagg set").digest())
