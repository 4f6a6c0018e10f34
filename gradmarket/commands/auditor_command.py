"""`gradmarket auditor run`: the requester's own machine runs accepted tasks again."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gradmarket.auditor import Done, Machine, Rota, open_auditor, run_due_tasks
from gradmarket.commands.auditor_hearings import attend_hearings
from gradmarket.commands.edge import DataOption, JsonOption, MarketOption, TokenOption, print_json
from gradmarket.compute.own_machine import AUTO, CPU, device_name
from gradmarket.endpoint import data_folder, find_endpoint
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.release import find_release_difference
from gradmarket.mistakes import print_error
from gradmarket.network.addresses import server_origin
from gradmarket.terminal import echo_text

PAUSE_S = 0.5
_IN_PANEL = {"seal": "sealed for its panel", "open": "opened to its panel"}
SINGLE = "single"
"""The folder of downloads of the class with one thread."""

app = typer.Typer(no_args_is_help=True, help="Run accepted tasks again: the requester's own check.")


@app.callback()
def auditor() -> None:
    """Run accepted tasks again, by the jobs' `audit`."""


@app.command()
def run(
    market: MarketOption = None,
    token: TokenOption = None,
    token_file: Annotated[Path | None, typer.Option(help="File whose first line is the token.")] = None,
    data: DataOption = None,
    cache: Annotated[Path | None, typer.Option(help="Folder of downloads; else auditor in the data folder.")] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, or cuda; part of the class.")] = AUTO,
    threads: Annotated[int | None, typer.Option(min=1, max=256, help="Threads of a step; part of the class.")] = None,
    max_memory: Annotated[int | None, typer.Option(min=2**28, help="Bytes that a step may take.")] = None,
    max_disk: Annotated[int, typer.Option(min=2**20, help="Bytes that downloads may take.")] = Machine.disk,
    reach: Annotated[
        list[str] | None, typer.Option(help="Origin in your own network that downloads may lead to; may be repeated.")
    ] = None,
    name: Annotated[str, typer.Option(help="Its name in audits; else the machine's.")] = "",
    rpc: Annotated[str | None, typer.Option(help="Your own node of the chain, which names each job's referee.")] = None,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
    as_json: JsonOption = False,
) -> None:
    """Audit until the first SIGTERM or SIGINT, which finishes the task in hand.

    With nothing to audit in its class it computes tasks audited in others, to calibrate jobs whose verifier is
    tolerance.
    """
    if with_parent:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_signal: ending.set())
    _check_option("--device", device_name, device)
    for origin in reach or ():
        _check_option("--reach", server_origin, origin)
    if token_file is not None and not token:
        try:
            token = token_file.read_text().splitlines()[0].strip()
        except (OSError, UnicodeError, IndexError) as error:
            fix = "name a file whose first line is an API token"
            raise Refused(f"--token-file {token_file}: {error}", fix) from error
    endpoint = find_endpoint(market, token, data)
    folder, reached = cache or data_folder(data) / "auditor", frozenset(reach or ())
    machine = Machine(folder, device, threads, max_memory, max_disk, reach=reached)
    name = name or f"{socket.gethostname()} {device}"
    with endpoint.market() as client:
        if other := find_release_difference(client.chain().protocol, endpoint.url, "this auditor"):
            raise Refused(*other)
    attend = partial(attend_hearings, rpc=rpc)
    with endpoint.market() as client, ExitStack() as stack:
        auditors = [stack.enter_context(open_auditor(name, client, endpoint.token, machine, attend))]
        if with_parent and threads is None and auditors[0].determinism_class.startswith(f"{CPU}/"):
            single = replace(machine, folder=folder / SINGLE, threads=1)  # as workers that share a machine have it
            auditors.append(stack.enter_context(open_auditor(name, client, endpoint.token, single, attend)))
        by_class = {one.determinism_class: one for one in reversed(auditors)}
        for one in by_class.values():
            one.beside = tuple(name for name in by_class if name != one.determinism_class)
        echo_text(f"Auditing for {endpoint.url} in class {' and '.join(by_class)}.", err=True)
        if auditors[0].warning:
            echo_text(auditors[0].warning, err=True)
        rota = Rota(tuple(by_class.values()))
        run_due_tasks(rota, lambda idle: ending.wait(PAUSE_S if idle else 0.0), Teller(as_json))


def _end_with_parent() -> None:
    """Ends at once when the process that holds the other end of the standard input is gone: nothing here lasts.

    Reads past `sys.stdin`, whose lock, still held when the program ends by itself, would abort it.
    """
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(0)


def _check_option(option: str, rule: Callable[[str], str], given: str) -> None:
    try:
        rule(given)
    except ValueError as error:
        raise Refused(f"{option}: {error}") from error


class Teller:
    """Prints each finished task, and a repeated error only once, since the auditor retries."""

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._error = as_json, ""

    def __call__(self, done: Done | MarketError) -> None:
        error = str(done) if isinstance(done, MarketError) else ""
        if isinstance(done, MarketError) and error != self._error:
            print_error(done, "gradmarket auditor run", self._as_json)
            echo_text("It is tried again until it works; Ctrl-C ends this.", err=True)
        elif isinstance(done, Done):
            as_json = self._as_json
            if as_json:
                print_json(asdict(done))
            else:
                otherwise = "it is far from the other class's" if done.calibrates else "it was accepted otherwise"
                again = f", in {done.runs} runs: {otherwise}" if done.runs > 1 else ""
                purpose = ", to calibrate with" if done.calibrates else ", before anybody" if done.planted else ""
                purpose += f", {_IN_PANEL[done.panel]}" if done.panel else ""
                echo_text(f"{done.task}: {done.root} in {done.seconds:.2f} s{purpose}{again}")
        self._error = error
