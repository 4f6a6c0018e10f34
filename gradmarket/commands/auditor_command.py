"""`gradmarket auditor run`: the requester's own machine runs accepted tasks again."""

import re
import signal
import socket
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gradmarket.auditor import Done, Machine, opened, watch
from gradmarket.commands.edge import DataOption, JsonOption, MarketOption, TokenOption, say_json
from gradmarket.endpoint import data_folder, find
from gradmarket.market.errors import MarketError, Refused
from gradmarket.runner.settings import DEVICE

PAUSE_S = 0.5

app = typer.Typer(no_args_is_help=True, help="Run accepted tasks again: the requester's own check.")


@app.callback()
def auditor() -> None:
    """Run accepted tasks again, as the jobs' `audit` says."""


@app.command()
def run(
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    cache: Annotated[Path | None, typer.Option(help="Folder of downloads; else auditor in the data folder.")] = None,
    device: Annotated[str, typer.Option(help="What computes: cpu, or cuda. It decides the determinism class.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, max=256, help="Threads of a step; part of the class.")] = 1,
    max_memory: Annotated[int, typer.Option(min=2**28, help="Bytes that a step may take.")] = Machine.memory,
    max_disk: Annotated[int, typer.Option(min=2**20, help="Bytes that downloads may take.")] = Machine.disk,
    as_json: JsonOption = False,
) -> None:
    """Audit until the first SIGTERM or SIGINT, which finishes the task in hand.

    With nothing to audit in its class it computes what was audited in others, to calibrate jobs whose verifier is
    tolerance.
    """
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_signal: ending.set())
    if not re.fullmatch(DEVICE, device):
        raise Refused(f"--device {device}: there is cpu, cuda, and cuda:1 and the like", "name one of them")
    endpoint = find(market, token, data)
    machine = Machine(cache or data_folder(data) / "auditor", device, threads, max_memory, max_disk)
    name = f"{socket.gethostname()} {device}"
    with endpoint.market() as client, opened(name, client, endpoint.token, machine) as runner:
        typer.echo(f"Auditing for {endpoint.url} in class {runner.determinism_class}.", err=True)
        watch(runner, lambda idle: ending.wait(PAUSE_S if idle else 0.0), lambda done: _say(done, as_json))


def _say(done: Done | MarketError, as_json: bool) -> None:
    if isinstance(done, MarketError):
        typer.echo(f"error: {done}", err=True)
    elif as_json:
        say_json(asdict(done))
    else:
        otherwise = "it is far from the other class's" if done.calibrates else "it was accepted otherwise"
        again = f", in {done.runs} runs: {otherwise}" if done.runs > 1 else ""
        purpose = ", to calibrate with" if done.calibrates else ""
        typer.echo(f"{done.task}: {done.root} in {done.seconds:.2f} s{purpose}{again}")
