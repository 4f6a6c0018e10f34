"""The evenness of updates over data with a tenth that is slow for every machine: a simulation by the service's rules.

`worst_share` is the uses of the least used row of the slow partitions over the mean of all rows, after whole epochs.
"""

from collections.abc import Iterator

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.simulation.skew import POLICIES, SkewPlay, SkewScenario

PREFIX = "skew."


def measure() -> Iterator[Figure]:
    scenario = sized(SkewScenario(), SkewScenario(epochs=1))
    plays = {policy: SkewPlay(scenario, policy) for policy in POLICIES}
    slow = plays["ours"].slow
    found = {policy: play.run() for policy, play in plays.items()}
    shares = {policy: outcome.worst_share(slow) for policy, outcome in found.items()}
    note = (
        f"{scenario.partitions} partitions, {slow} of them {scenario.slower:g} times slower, {scenario.epochs} epochs"
    )
    yield Figure("skew.worst_share", shares["ours"], "of the mean", target=">= 0.99", note=note)
    yield Figure("skew.worst_share.drop", shares["drop"], "of the mean", note=note)
    yield Figure("skew.worst_share.wait", shares["wait"], "of the mean", note=note)
    for policy, outcome in found.items():
        ratio = outcome.seconds / found["wait"].seconds
        yield Figure(f"skew.seconds.{policy}", outcome.seconds, "s", "wait for all", ratio, note="simulated time")
        loss = sum(outcome.losses[-slow:]) / slow
        yield Figure(f"skew.slow_loss.{policy}", loss, "mean square", note="on the slow partitions, at the end")
