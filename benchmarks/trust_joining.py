"""Rounds until newcomers of a job of `proven` are first paid: alone, beside a flood, and behind others that leave."""

from collections.abc import Iterator
from statistics import mean
from typing import Final

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.trust.free_identities import (
    RingMarket,
    Rules,
    count_rounds_behind_leavers,
    count_rounds_until_paid,
)

PREFIX: Final = "trust.joining."
WORKERS: Final = sized(60, 12)
SEEDS: Final = sized(40, 2)
NETWORKS: Final = sized((4, 16, 64), (4,))
"""Networks that a flood comes from."""


def measure() -> Iterator[Figure]:
    rules = Rules()
    for tasks in (8, 40):
        market, name = RingMarket(WORKERS, tasks), f"{PREFIX}{tasks}"
        places = max(1, int(rules.newcomers * tasks))
        alone = [max(count_rounds_until_paid(market, rules, places, 0, 1, seed)) for seed in range(SEEDS)]
        yield Figure(f"{name}.first_pay", mean(alone), "rounds", target="<= 1", note=f"{places} wait")
        for networks in NETWORKS:
            flood = 10 * market.workers
            paid = [count_rounds_until_paid(market, rules, 1, flood, networks, seed)[0] for seed in range(SEEDS)]
            note = f"{flood} identities answer right; at most {max(paid)}"
            yield Figure(f"{name}.beside_{networks}", mean(paid), "rounds", target="<= 10", note=note)
            backed = [
                count_rounds_until_paid(market, rules, 1, flood, networks, seed, True)[0] for seed in range(SEEDS)
            ]
            note = f"the newcomer alone has a deposit; at most {max(backed)}"
            yield Figure(f"{name}.deposit_beside_{networks}", mean(backed), "rounds", target="<= 10", note=note)
            behind = count_rounds_behind_leavers(market, rules, networks)
            yield Figure(f"{name}.behind_{networks}", behind, "rounds", target="<= 10")
