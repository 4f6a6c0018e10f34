"""`gradmarket simulate`: simulates a small market under the service's own trust rules.

With --skew: rounds over data of which some is slow for every machine.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from gradmarket.commands.edge import JsonOption, print_json
from gradmarket.market.errors import Refused
from gradmarket.simulation.play import Play
from gradmarket.simulation.scenario import Scenario
from gradmarket.simulation.skew import POLICIES, SkewPlay, SkewScenario
from gradmarket.simulation.skew_picture import draw_skew_svg
from gradmarket.simulation.strategies import STRATEGIES
from gradmarket.terminal import ShownConsole, echo_text
from gradmarket.user_files import check_input, check_writable, load_json_object, write_all

MixOption = Annotated[
    list[str] | None,
    typer.Option("--mix", help=f"KIND=SHARE, as often as wanted; the rest are honest. Kinds: {', '.join(STRATEGIES)}."),
]


def simulate(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE.json]", help="A scenario; - for standard input. Options win.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="10,000 if none.")] = None,
    tasks: Annotated[int | None, typer.Option(help="Accepted ones, after which it ends; 300,000 if none.")] = None,
    mix: MixOption = None,
    policy: Annotated[str | None, typer.Option(help="fixed, audited, adaptive, or boinc to compare.")] = None,
    stake: Annotated[float | None, typer.Option(help="Of each worker, in prices of a gradient.")] = None,
    history: Annotated[float | None, typer.Option(help="Audits that those at the start have passed.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed is another play.")] = None,
    skew: Annotated[bool, typer.Option("--skew", help="Rounds over data that is partly slow for everybody.")] = False,
    picture: Annotated[Path | None, typer.Option(help="With --skew: write a picture (SVG) to this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Play a market of honest workers and attackers by the rules of draws, votes, audits, reputation and stakes.

    With --skew: rounds by this market's rules, by dropping the slowest tasks, and by waiting for all.
    """
    options = {"workers": workers, "tasks": tasks, "policy": policy, "stake": stake, "history": history, "seed": seed}
    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if picture is not None and not skew:
        raise Refused("a picture is drawn with --skew only: add it")
    if picture is not None:
        check_writable(picture)
    if skew:
        play_skewed((load_json_object(file) if file else {}) | chosen, picture, as_json)
        return
    if mix:
        try:
            chosen["mix"] = {kind: float(share) for kind, _, share in (text.partition("=") for text in mix)}
        except ValueError as error:
            raise Refused("--mix is KIND=SHARE, such as sleeper=0.2") from error
    scenario = check_input(Scenario, (load_json_object(file) if file else {}) | chosen, "the scenario")
    echo_text(f"Playing {scenario.tasks:,} tasks among {scenario.workers:,} workers: --tasks N plays fewer.", err=True)
    outcome = Play(scenario).run()
    if as_json:
        print_json({"scenario": scenario.model_dump(), "outcome": outcome.as_json()})
        return
    table = Table("kind", "workers", "leases", "paid", "lies", "passed", "caught", "quorums", "stake lost", "gain")
    for kind, tally in sorted(outcome.kinds.items()):
        counts = (tally.workers, tally.replicas, tally.paid, tally.lies, tally.lies_accepted, tally.lies_caught)
        money = (f"{tally.stake_lost:,.0f}", f"{tally.gain:,.0f}")
        table.add_row(kind, *(f"{count:,}" for count in counts), f"{tally.quorums_held:,}", *money)
    ShownConsole().print(table)
    share = outcome.never_caught / outcome.lies if outcome.lies else 0.0
    echo_text(f"{outcome.tasks:,} tasks accepted in {outcome.seconds / 3600:.1f} simulated hours")
    echo_text(f"{outcome.cost:.3f} computations for each that stays accepted; plain training is 1")
    echo_text(f"{outcome.never_caught:,} of {outcome.lies:,} lies were accepted and never caught ({share:.2%})")


def play_skewed(chosen: dict[str, Any], picture: Path | None, as_json: bool) -> None:
    scenario = check_input(SkewScenario, chosen, "the scenario")
    plays = [SkewPlay(scenario, policy) for policy in POLICIES]
    slow, outcomes = plays[0].slow, [play.run() for play in plays]
    if picture is not None:
        write_all({picture: draw_skew_svg(outcomes, slow)})
    if as_json:
        lines = [asdict(outcome) | {"worst_share": outcome.worst_share(slow)} for outcome in outcomes]
        print_json({"scenario": scenario.model_dump(), "outcomes": lines})
        return
    table = Table(Column("policy", no_wrap=True), "seconds", "rounds", "worst share", "loss, slow", "loss, others")
    for one in outcomes:
        losses = sum(one.losses[-slow:]) / slow, sum(one.losses[:-slow]) / len(one.losses[:-slow])
        share = f"{one.worst_share(slow):.3f}"
        table.add_row(POLICIES[one.policy], f"{one.seconds:.0f}", str(one.rounds), share, *(f"{x:.4f}" for x in losses))
    ShownConsole().print(table)
