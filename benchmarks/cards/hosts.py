"""Checks of a host with cards: each card opens, in one class, and reports its load.

Nothing of the worker is imported: it needs libraries that a card's machine may lack.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.cards.lines import MEMORY, SEED, Line
from benchmarks.cards.workloads import Arrays, list_workloads
from gradmarket.compute.own_machine import ALL, Computing, open_runners
from gradmarket.runner import RunnerSettings
from graphdoc.errors import GraphdocError
from graphdoc.runner.cards import list_cards
from graphdoc.runner.driver import Management


def check_hosts(device: str) -> Iterator[Line]:
    """All cards compute the same bits at once, each in a child of one worker."""
    workload = next(one for one in list_workloads() if one.name == "mlp")

    def compute(mine: Computing) -> Arrays:
        mine.runner.load(workload.model.document)
        return mine.runner.run(workload.model.parameters, workload.batch, SEED)

    try:
        with open_runners(RunnerSettings(), "cpu" if device == "cpu" else ALL, 1, MEMORY) as each:
            with ThreadPoolExecutor(len(each)) as at_once:
                answers = list(at_once.map(compute, each))
            bits = {tuple((name, array.tobytes()) for name, array in sorted(one.items())) for one in answers}
            yield Line("hosts.all", len(bits) == 1, "; ".join(one.text for one in each), len(each), "devices")
    except GraphdocError as error:  # cards of two classes are no one worker
        yield Line("hosts.all", "a worker has one class" in error.detail, error.detail)


def check_loads(device: str) -> Iterator[Line]:
    """Each card reports its load, by which the rules of heat and watts hold its worker."""
    if device == "cpu":
        return
    library = Management()
    for card in list_cards().cards:
        load = library.read_load(card.uuid)
        known = load is not None and None not in (load.percent, load.watts, load.celsius, load.free)
        yield Line(f"loads.{card.number}", known, f"{load}; where a container hides it, --max-watts is refused")
