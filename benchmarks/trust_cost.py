"""The cost of trust: computations for each accepted gradient, of which plain training needs one.

`trust.cost.f20`: a fifth of a market of proven workers are cheaters, and at most 1 in 100 of their wrong gradients is
accepted and never caught. By the formula and in the simulated market, for rational cheaters (none lies) and for those
that lie at any loss. `trust.cost.newcomers`: while a market of newcomers proves itself.
"""

import math
from collections.abc import Iterator

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.market.rules.replication import adaptive
from gradmarket.simulation.play import Play
from gradmarket.simulation.play_outcome import PlayOutcome
from gradmarket.simulation.scenario import Scenario

PREFIX = "trust.cost."
CHEATERS = 0.2
TASKS_EACH = sized(1000, 20)
WORKERS = sized(50, 10)
WINDOW = 100


def measure() -> Iterator[Figure]:
    floor = adaptive.Settings().floor
    formula = compute_work_per_gradient(floor, CHEATERS, WINDOW, TASKS_EACH)
    escaping = compute_escaping_share(floor, WINDOW)
    yield Figure("trust.cost.f20.formula", formula, "of plain", target="<= 1.10", note=f"{escaping:.2%} escape")
    for name, kind in (("trust.cost.f20", "sleeper"), ("trust.cost.f20.rational", "rational")):
        outcome = played({kind: CHEATERS}, history=200.0)
        yield Figure(name, outcome.cost, "of plain", target="<= 1.10", note=_note(outcome))
        if outcome.lies:
            share = outcome.never_caught / outcome.lies
            yield Figure(f"{name}.never_caught", share, "of wrong", target="<= 0.01", note=_note(outcome))
    boinc = played({"sleeper": CHEATERS}, policy="boinc")
    wrong = boinc.kinds["sleeper"].lies_accepted / boinc.kinds["sleeper"].paid
    yield Figure("trust.cost.boinc", wrong, "wrong of its accepted", note="for comparison: the same play, BOINC's rule")
    newcomers = played({}, history=0.0)
    yield Figure("trust.cost.newcomers", newcomers.cost, "of plain", note=f"their first {TASKS_EACH} tasks")


def played(mix: dict[str, float], **more: float | str) -> PlayOutcome:
    scenario = {"workers": WORKERS, "tasks": WORKERS * TASKS_EACH, "window": WINDOW, "mix": mix, "seed": 20}
    return Play(Scenario.model_validate(scenario | more)).run()


def _note(outcome: PlayOutcome) -> str:
    return f"{outcome.never_caught} of {outcome.lies} wrong ones never caught, {outcome.tasks} tasks"


def compute_escaping_share(rate: float, window: int, share: float = 1.0) -> float:
    """Returns the share of a worker's wrong gradients that become final: (1 - s p)^W.

    `share` s is the share of its answers that are wrong: each of the W answers is wrong and audited with probability
    s p. A worker that lies rarely is caught as surely for each lie, but more of its earlier lies are final by then.
    """
    return math.pow(1.0 - share * rate, window)


def compute_work_per_gradient(rate: float, cheating: float, window: int, tasks: int) -> float:
    """Returns the computations for each accepted gradient.

    Every proven worker does `tasks`; a share `cheating` of them always lies. Audits cost 1 + p. Each caught liar costs
    1 / p gradients that are done again, and the audits of its window: cheating * (window + 1 / p) / tasks.
    """
    return 1.0 + rate + cheating * (window + 1.0 / rate) / tasks
