"""Starts this machine's cards step by step, as a worker does, and reports each step's result and remedy."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gradmarket.compute.own_machine import has_card
from gradmarket.market.errors import MarketError
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.runner.machine_limits import ROOT
from graphdoc.runner.cards import list_cards, start_confined

_CPU: Final = "or compute with --device cpu"


@dataclass(frozen=True)
class CardFinding:
    """The result of one step; `fix` is empty if nothing is wrong."""

    name: str
    detail: str
    fix: str = ""


def check_cards(root: Path = ROOT) -> Iterator[CardFinding]:
    """Yields a finding a step: nodes, driver, its start in the confinement, then each card with a worker's child.

    Ends after the first step that fails, but for the cards' own.
    """
    if not has_card(root):
        yield CardFinding("card", "none: neither /dev/nvidiactl nor /dev/dxg is here")
        return
    found = list_cards()
    if found.fault:
        yield CardFinding("card's driver", found.fault, f"{found.remedy}, {_CPU}")
        return
    yield CardFinding(
        "card's driver", f"{found.driver or 'of an unknown version'}, starts with {len(found.cards)} cards"
    )
    confined, refused = start_confined(root)
    if confined.fault:
        named = str(refused) or "nothing that is watched"
        fix = f"report it with this line ({_CPU}): the confinement refuses what this driver needs"
        yield CardFinding("card's confinement", f"{confined.fault}; refused was {named}", fix)
        return
    yield CardFinding("card's confinement", "the driver starts under it")
    for card in found.cards:
        name, free = f"cuda:{card.number}", "unknown" if card.free is None else f"{card.free / 2**30:.1f} GiB"
        described = f"{card.name}, {card.memory / 2**30:.1f} GiB, free {free}, {card.architecture}"
        try:
            with Runner(RunnerSettings(device=name)) as runner:
                missing = ", ".join(runner.missing())
                without = f", without the measures {missing}" if missing else ""
                finding = CardFinding(name, f"{described}, class {runner.determinism_class()}{without}")
        except MarketError as error:
            why = f"{described}; its child: {error.detail}"
            finding = CardFinding(name, why, f"{error.remedy or 'fix it'}, {_CPU}")
        yield finding
