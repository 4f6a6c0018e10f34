"""`fixed(R)`: R replicas at once, more only where they disagree, never beyond R_max commitments."""


def first_wave(replicas: int, maximum: int) -> int:
    """How many workers the first wave wants."""
    return min(replicas, maximum)


def quorum(replicas: int) -> int:
    """floor(R/2) + 1 agreeing ballots, whatever number was cast."""
    return replicas // 2 + 1


def next_wave(replicas: int, maximum: int, committed: int, best: int) -> int:
    """The fewest further workers that could still crown the largest group, or 0 where none can within `maximum`.

    The largest group must reach the quorum and hold strictly more than half of all committed replicas.
    """
    for more in range(1, maximum - committed + 1):
        if best + more >= quorum(replicas) and 2 * (best + more) > committed + more:
            return more
    return 0
