"""Rounds until newcomers of a job of `proven` are first paid: alone, and beside floods that came before them.

In simulation, with the money that a job of 40 rounds may reserve for newcomers (features.proven.seat_rules).
"""

from collections.abc import Iterator
from statistics import mean
from typing import Final

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.trust.free_identities import FLOODS, RingMarket, Rules, count_rounds_until_paid

PREFIX: Final = "trust.joining."
WORKERS: Final = sized(60, 12)
ROUNDS: Final = 40
SEEDS: Final = sized(40, 2)
NETWORKS: Final = sized((4, 16, 64, 200), (4,))
"""Networks that a flood comes from, with an identity each."""
KINDS: Final = {"works": "beside", "leaves": "behind", "hoards": "after"}
"""A figure's name for each habit of a flood: it answers right, leaves its places, or keeps its money and is gone."""
WITHIN: Final = 10.0
"""Rounds within which a newcomer is to be paid."""


def measure() -> Iterator[Figure]:
    rules = Rules()
    for tasks in (8, 40):
        market, name = RingMarket(WORKERS, tasks, ROUNDS), f"{PREFIX}{tasks}"
        places = max(1, int(rules.newcomers * tasks))
        alone = [max(count_rounds_until_paid(market, rules, places, 0, 1, seed)) for seed in range(SEEDS)]
        yield Figure(f"{name}.first_pay", mean(alone), "rounds", target="<= 1", note=f"{places} wait")
        for networks in NETWORKS:
            within = (networks + 2) / tasks <= WITHIN  # no rule serves one of more that are alike sooner (seat_rules)
            for habit in FLOODS:
                for deposit in (False, True):
                    paid = [
                        count_rounds_until_paid(market, rules, 1, networks, networks, seed, deposit, habit)[0]
                        for seed in range(SEEDS)
                    ]
                    part = f"{name}.{'deposit_' * deposit}{KINDS[habit]}_{networks}"
                    target = f"<= {WITHIN:.0f}" if deposit or within else ""
                    yield Figure(part, mean(paid), "rounds", target=target, note=f"at most {max(paid)}")
