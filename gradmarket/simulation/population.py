"""The workers of a simulation: those present at the start, newcomers, and those that return."""

import random
from collections import deque

from gradmarket.market.features.reputation import NEWCOMER, TrustRecord
from gradmarket.market.rules.assignment import Candidate, Party
from gradmarket.market.terms import Address, Units
from gradmarket.simulation.scenario import Scenario
from gradmarket.simulation.simulated_market import SimulatedOperator, SimulatedWorker
from gradmarket.simulation.strategies import STRATEGIES

CLASS = "cpu"
PRICE = Units(1)
ENDLESS = Units(2**62)


class Population:
    """Makes workers. Each has its own operator: the market cannot see that Sybils belong together."""

    def __init__(self, scenario: Scenario, chance: random.Random) -> None:
        self._scenario = scenario
        self._chance = chance
        self._made = 0

    def at_the_start(self) -> list[SimulatedWorker]:
        """Returns the initial workers of the mix, in shuffled order."""
        scenario = self._scenario
        kinds = [kind for kind, share in sorted(scenario.mix.items()) for _ in range(round(share * scenario.workers))]
        kinds = (kinds + ["honest"] * scenario.workers)[: scenario.workers]
        self._chance.shuffle(kinds)
        known = TrustRecord(scenario.history, 0.0) if scenario.history else NEWCOMER
        return [self.worker(kind, 0.0, known) for kind in kinds]

    def worker(self, kind: str, now: float, record: TrustRecord = NEWCOMER) -> SimulatedWorker:
        self._made += 1
        scenario, address = self._scenario, Address(f"0x{self._made:040x}")
        party = Party(address, address, address, None)
        return SimulatedWorker(
            address=address,
            kind=kind,
            strategy=STRATEGIES[kind],
            operator=SimulatedOperator(scenario.stake, deque(), record),
            candidate=Candidate(party, CLASS, ENDLESS, 1, PRICE, frozenset()),
            pace=scenario.task_s * self._chance.lognormvariate(0.0, scenario.spread),
            leaves_at=now + self._chance.expovariate(1.0 / scenario.stay_s) if scenario.stay_s else float("inf"),
        )
