"""Rounds until newcomers of a job of `proven` are first paid: alone, beside a flood, and behind others that leave."""

from collections.abc import Iterator
from statistics import mean
from typing import Final

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.trust.free_identities import RingMarket, Rules, count_rounds_until_paid

PREFIX: Final = "trust.joining."
WORKERS: Final = sized(60, 12)
SEEDS: Final = sized(40, 2)
NETWORKS: Final = sized((4, 16, 64), (4,))
"""Networks that a flood comes from."""
KINDS: Final = (
    ("beside", "{} identities answer right", False, False),
    ("deposit_beside", "the newcomer alone has a deposit", True, False),
    ("behind", "{} identities leave their places", False, True),
)
"""A figure's name and note, whether the newcomer has a deposit, and whether the flood leaves its places."""


def measure() -> Iterator[Figure]:
    rules = Rules()
    for tasks in (8, 40):
        market, name = RingMarket(WORKERS, tasks), f"{PREFIX}{tasks}"
        places = max(1, int(rules.newcomers * tasks))
        alone = [max(count_rounds_until_paid(market, rules, places, 0, 1, seed)) for seed in range(SEEDS)]
        yield Figure(f"{name}.first_pay", mean(alone), "rounds", target="<= 1", note=f"{places} wait")
        for networks in NETWORKS:
            flood = 10 * market.workers
            for figure, words, deposit, leaves in KINDS:
                paid = [
                    count_rounds_until_paid(market, rules, 1, flood, networks, seed, deposit, leaves)[0]
                    for seed in range(SEEDS)
                ]
                note = f"{words.format(flood)}; at most {max(paid)}"
                yield Figure(f"{name}.{figure}_{networks}", mean(paid), "rounds", target="<= 10", note=note)
