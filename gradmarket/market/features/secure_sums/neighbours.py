"""Who masks against whom: the union of random cycles through all holders, drawn from a block's hash.

The hash must be of a block after the one by which the holders were fixed, so that nobody chooses holders by the graph.
"""

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from gradmarket.market.terms import Hash

Adjacency = NDArray[np.bool_]
"""bool[holders, holders], symmetric: who is whose neighbour. Nobody is its own."""


def draw_adjacency(beacon: Hash, job: int, round_number: int, holders: int, cycles: int) -> Adjacency:
    """Returns the graph of a round; the same for all who know the block's hash. 0 cycles join each to each."""
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
