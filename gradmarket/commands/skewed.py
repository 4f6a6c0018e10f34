"""`gradmarket simulate --skew`: rounds over data of which some is slow for every machine."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from gradmarket.commands.edge import say_json
from gradmarket.json_input import check_input
from gradmarket.simulation.skew import POLICIES, SkewPlay, SkewScenario
from gradmarket.simulation.skew_picture import draw_skew_svg
from gradmarket.terminal import ShownConsole


def play_skewed(chosen: dict[str, Any], picture: Path | None, as_json: bool) -> None:
    scenario = check_input(SkewScenario, chosen, "the scenario")
    plays = [SkewPlay(scenario, policy) for policy in POLICIES]
    slow, outcomes = plays[0].slow, [play.run() for play in plays]
    if picture is not None:
        picture.write_text(draw_skew_svg(outcomes, slow))
    if as_json:
        lines = [asdict(outcome) | {"worst_share": outcome.worst_share(slow)} for outcome in outcomes]
        say_json({"scenario": scenario.model_dump(), "outcomes": lines})
        return
    table = Table(Column("policy", no_wrap=True), "seconds", "rounds", "worst share", "loss, slow", "loss, others")
    for one in outcomes:
        losses = sum(one.losses[-slow:]) / slow, sum(one.losses[:-slow]) / len(one.losses[:-slow])
        share = f"{one.worst_share(slow):.3f}"
        table.add_row(POLICIES[one.policy], f"{one.seconds:.0f}", str(one.rounds), share, *(f"{x:.4f}" for x in losses))
    ShownConsole().print(table)
