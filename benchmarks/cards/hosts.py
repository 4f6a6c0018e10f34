"""Checks of a host with cards: each card opens, in one class, and reports its load.

Nothing of the worker is imported: it needs libraries that a card's machine may lack.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.cards.lines import MEMORY, SEED, Line
from benchmarks.cards.workloads import Arrays, list_workloads
from gradmarket.compute.own_machine import ALL, Computing, open_runners
from gradmarket.runner import RunnerSettings
from graphdoc.errors import GraphdocError
from graphdoc.runner import DocumentRunner
from graphdoc.runner.card_slots import CardSlots, open_slots
from graphdoc.runner.cards import list_cards
from graphdoc.runner.driver import Management

GIVEN_BACK_S: Final = 30.0
"""Idle children give a card's memory back after two seconds."""


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


def check_slots(device: str) -> Iterator[Line]:
    """Two children that share a card give the same bits, and all of its memory back once they idle."""
    workload = next(one for one in list_workloads() if one.name == "mlp")
    with ThreadPoolExecutor(2) as at_once, TemporaryDirectory() as folder:
        path = str(Path(folder) / "slots")
        descriptor = open_slots(path)
        if descriptor is None:
            yield Line("memory.slots", False, f"{path} cannot be opened")
            return
        settings = RunnerSettings(device=device, memory_bytes=MEMORY, slots=path)
        with DocumentRunner(settings) as one, DocumentRunner(settings) as other:
            for runner in (one, other):
                runner.load(workload.model.document)
            task = workload.model.parameters, workload.batch, SEED
            answers = list(at_once.map(lambda runner: [runner.run(*task) for _ in range(4)], (one, other)))
            bits = {tuple((k, v.tobytes()) for k, v in sorted(each.items())) for several in answers for each in several}
            begun = time.monotonic()
            at_once.submit(CardSlots(descriptor, 2 * MEMORY).take, 2 * MEMORY).result(GIVEN_BACK_S)
            yield Line("memory.slots", len(bits) == 1, "until both had given back", time.monotonic() - begun, "s")
        os.close(descriptor)


def check_loads(device: str) -> Iterator[Line]:
    """Each card reports its load, by which the rules of heat and watts hold its worker."""
    if device == "cpu":
        return
    library = Management()
    for card in list_cards().cards:
        load = library.read_load(card.uuid)
        known = load is not None and None not in (load.percent, load.watts, load.celsius, load.free)
        yield Line(f"loads.{card.number}", known, f"{load}; where a container hides it, --max-watts is refused")
