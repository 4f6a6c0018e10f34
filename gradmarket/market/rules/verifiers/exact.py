"""`exact`: workers of one determinism class agree where their payload roots are equal."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from gradmarket.market.rules.verifiers import Revealed
from gradmarket.market.terms import Digest, ReplicaId

SKETCHED: Final = False
SCORED: Final = False


def ballot(revealed: Revealed) -> Digest:
    return revealed.root


def groups(ballots: Mapping[ReplicaId, Digest | None], _allowed: None = None) -> list[frozenset[ReplicaId]]:
    """Groups replicas by root. Equality is transitive, so the groups are well-defined."""
    by_root: defaultdict[Digest, set[ReplicaId]] = defaultdict(set)
    for replica, root in ballots.items():
        if root is not None:
            by_root[root].add(replica)
    ranked = sorted(by_root.items(), key=lambda group: (-len(group[1]), group[0]))
    return [frozenset(members) for _, members in ranked]
