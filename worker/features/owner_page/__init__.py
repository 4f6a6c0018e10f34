"""The view of a worker's owner: earnings, work and standing, on a terminal or as a page of this machine.

It reads the worker's folder, the chain and the market's public routes. It needs no key and changes nothing.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.live import Live

from gradmarket.terminal import ShownConsole, echo_text
from worker.feature import WorkerFeature
from worker.features.owner_page.elsewhere import Outlook
from worker.features.owner_page.local_page import serve_own_page
from worker.features.owner_page.own_facts import OwnFolder
from worker.features.owner_page.terminal import draw_own_view
from worker.markets.market_session import Shared
from worker.options import DataOption, RpcOption, settings_of

REDRAWN_S: Final = 1.0
WIDE: Final = 160
"""Columns without a terminal, so that no address is cut."""


def top(
    market: Annotated[
        list[str] | None, typer.Option("--market", help="Address of a requester's service; may be repeated.")
    ] = None,
    rpc: RpcOption = None,
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with everything, once.")] = False,
) -> None:
    """Show a folder's worker, its earnings and its work, until Ctrl-C; it need not run, and no key is asked for.

    Without a terminal, or with --json, show it once. Amounts in JSON are in the token's smallest unit.
    """
    places = {"market": market[0] if market else None, "markets": (market or [])[1:] or None}
    settings = settings_of(**places, rpc=rpc, data=data)
    outlook = Outlook(settings, OwnFolder(Path(settings.data)))
    console = ShownConsole()
    if as_json or not console.is_terminal:
        own, elsewhere = outlook.own.look(time.time()), outlook.look()
        if as_json:
            echo_text(json.dumps({**asdict(own), **asdict(elsewhere)}))
        else:
            ShownConsole(width=max(WIDE, console.width), soft_wrap=True).print(draw_own_view(own, elsewhere))
        return
    with outlook.running(), Live(console=console, auto_refresh=False, screen=True) as live:
        try:
            while True:
                live.update(draw_own_view(outlook.own.look(time.time()), outlook.newest), refresh=True)
                time.sleep(REDRAWN_S)
        except KeyboardInterrupt:
            return


class OwnerPageFeature(WorkerFeature):
    name = "owner_page"
    needs = ("stakes",)
    serves = frozenset({"page"})
    commands = {"top": top}

    @contextmanager
    def run_beside(self, shared: Shared) -> Iterator[None]:
        settings = shared.settings
        if settings.page is None:
            yield
            return
        with serve_own_page(Outlook(settings, OwnFolder(settings.data)), settings.page) as url:
            shared.journal.report("page", f"This worker's earnings and work: {url}", url=url)
            yield
