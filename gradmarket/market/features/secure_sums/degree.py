"""The number of a holder's neighbours, and the thresholds: exact, in integers, so that all parties compute the same.

The graph is the union of `cycles` random cycles through all n holders. At most C holders collude with the requester,
and at most D drop out. The requester may choose both by the graph: the holders that it calls dropped, and those that it
bribes. With probability 1 - 2^-SECRECY over the graph, whichever C collude,

- of honest holders that stay no x > s have all their edges among themselves and to others than the rest of them. A
  cycle's edges out of x holders miss y others with probability at most (1 - y / (n - 1))^x, for each next edge ends at
  one of at most n - 1 holders, of which y are the others. Summed over all choices of the C and of both sets.

With threshold t = C + s no C holders can put a secret together, and each holder that stays has at least s honest
neighbours that stay and, with itself, is more than s; so the honest ones that stay are one connected part, and the sum
of all of them is the least that can be learnt (Bell et al. 2020 have the same argument for colluders and drop-outs that
are fixed before the graph). With probability 1 - 2^-SUCCESS each holder has t neighbours that stay, where holders drop
out without regard to the graph.

Where that needs as many neighbours as there are holders, each is the neighbour of each.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Final

from gradmarket.market.errors import Refused
from gradmarket.market.job_parts import MOST_HOLDERS

SECRECY: Final = 40
"""Minus the binary logarithm of the probability that a graph does not protect (sigma of Bell et al.)."""
SUCCESS: Final = 20
"""The same for the probability that a round fails although no more dropped out than it allows (eta)."""
_FINE: Final = 2**12
"""A logarithm is in multiples of 1 / _FINE."""
_SCALE: Final = 96
"""Bits after the point of a probability."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """`cycles`: half of a holder's neighbours; 0 where each is the neighbour of each.

    `threshold`: neighbours that must stay, and shares that give a secret; `quorum`: signatures under one set of
    survivors, enough that no two sets can have them; `least`: survivors.
    """

    cycles: int
    threshold: int
    quorum: int
    least: int


@lru_cache(maxsize=64)
def plan_group(holders: int, corrupt: int, dropped: int) -> GroupPlan:
    """Returns the least graph for `holders` holders, of which `corrupt` may collude and `dropped` may drop out.

    Raises Refused where no graph protects them.
    """
    least, quorum = holders - dropped, (holders + corrupt) // 2 + 1
    if corrupt < 1 or dropped < 0 or holders > MOST_HOLDERS:
        raise Refused(f"a sum is of at most {MOST_HOLDERS} holders, of whom at least one may collude")
    if least - corrupt < 2 or quorum > least:
        raise Refused(
            f"of {holders} holders {corrupt} may collude and {dropped} drop out, so a sum could be of one holder alone",
            "take more holders, or allow fewer to drop out",
        )
    few, many = 2, (holders - 2) // 2  # the answer is in [few, many + 1]
    while few <= many:
        cycles = (few + many) // 2
        few, many = (few, cycles - 1) if _has_likely_success(holders, corrupt, dropped, cycles) else (cycles + 1, many)
    if few <= (holders - 2) // 2:
        return GroupPlan(few, _compute_threshold(holders, corrupt, dropped, few), quorum, least)
    return GroupPlan(0, min(max(corrupt + 1, (holders + 1) // 2), least - 1), quorum, least)


def _has_likely_success(holders: int, corrupt: int, dropped: int, cycles: int) -> bool:
    """Returns whether a round with no more drop-outs fails with a probability of at most 2^-SUCCESS."""
    threshold, others = _compute_threshold(holders, corrupt, dropped, cycles), holders - 1
    counts, whole = _count_distinct_ways(others, cycles), (others * (others - 1)) ** cycles
    staying, leaving, fails = _list_choice_counts(others - dropped), _list_choice_counts(dropped), 0
    for degree, count in enumerate(counts):
        if count << _SCALE < whole:
            fails += 1  # too rare to matter, and rounded up
            continue
        least = max(0, degree - dropped)
        few = sum(staying[i] * leaving[degree - i] for i in range(least, min(threshold, degree + 1, len(staying))))
        fails += (count * few << _SCALE) // (whole * comb(others, degree)) + 1
    return fails * holders <= 1 << (_SCALE - SUCCESS)


@lru_cache(maxsize=8)
def _list_choice_counts(count: int) -> list[int]:
    """Returns the numbers of ways to choose 0, 1, … and all of `count` things."""
    return [comb(count, chosen) for chosen in range(count + 1)]


def _count_distinct_ways(others: int, cycles: int) -> list[int]:
    """Returns, by the number of distinct holders, the ways in which the two neighbours of each cycle are that many."""
    ways = [1]
    for _ in range(cycles):
        grown = [0] * (len(ways) + 2)
        for known, count in enumerate(ways):
            fresh = others - known
            grown[known] += count * known * (known - 1)
            grown[known + 1] += count * 2 * known * fresh
            grown[known + 2] += count * fresh * (fresh - 1)
        ways = grown
    return ways


def _compute_threshold(holders: int, corrupt: int, dropped: int, cycles: int) -> int:
    """Returns C + s: s is the most honest holders that might have no edge to the others that stay, at 2^-SECRECY, or 1.

    The costs are those of x = 1, 2, …: the first from the end that is too high for the graph is s.
    """
    for apart, (needed, gained) in reversed(list(enumerate(_list_cut_costs(holders, corrupt, dropped), start=1))):
        if needed * _FINE > apart * cycles * gained:
            return corrupt + apart
    return corrupt + 1


@lru_cache(maxsize=8)
def _list_cut_costs(holders: int, corrupt: int, dropped: int) -> list[tuple[int, int]]:
    """Returns for x = 1, 2, … up to half of those that stay: the bits that an exclusion of all such sets needs, rounded
    up, and how many each edge of a cycle gives, in multiples of 1 / _FINE, rounded down."""
    honest, stay = holders - corrupt, holders - corrupt - dropped
    found = []
    for apart in range(1, stay // 2 + 1):
        rest = stay - apart
        sets = comb(holders, corrupt) * comb(honest, apart) * comb(honest - apart, rest) * holders
        missed = max(1, holders - 1 - rest)
        gained = ((holders - 1) ** _FINE).bit_length() - 1 - (missed**_FINE).bit_length()
        found.append((sets.bit_length() + SECRECY, gained))
    return found
