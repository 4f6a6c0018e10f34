"""A watchtower: redeems vouchers and contests accusations for a worker that is offline, with a key that can do nothing
else. The worker exports the needed files, and keeps the export up to date while it runs.

`gradmarket wallet export-watch` and `gradmarket wallet watch`: a worker's watchtower, and the files that it gets for
that.
"""

import signal
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from gradmarket.market.errors import Refused
from gradmarket.market.signing import parse_named_address
from gradmarket.user_files import parse_place
from worker import durable, wallet
from worker.feature import WorkerFeature
from worker.features.watchtower.export_sync import ExportSync, export_to, store_target
from worker.features.watchtower.watched_workers import Watchtower
from worker.journal import Journal
from worker.markets.market_session import Shared
from worker.options import DataOption, JsonOption, PassphraseOption, RpcOption, add_wallet_passphrase, settings_of


def export_watch(
    folder: Annotated[
        Path,
        typer.Argument(parser=parse_place, metavar="FOLDER", help="Where to write; the watchtower gets a copy of it."),
    ],
    watcher: Annotated[str, typer.Option(help="Address of the watchtower's own key.")],
    payout: Annotated[str | None, typer.Option(help="Where earnings go, as given to `worker run`.")] = None,
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export all that a watchtower needs but no key: vouchers, evidence, and a mandate to contest accusations.

    A running worker keeps the folder up to date from then on.
    """
    settings = settings_of(rpc=rpc, data=data, payout=payout, passphrase_file=passphrase_file)
    settings = add_wallet_passphrase(settings)
    key, named = wallet.load_wallet(settings.data, settings.secret), parse_named_address(watcher)
    if named == key.address:
        raise Refused(f"{named} is this worker's own key", "make another with `gradmarket wallet new --data FOLDER`")
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is a file", "name a folder")
    if folder.resolve() == settings.data.resolve():
        raise Refused(f"{folder} has the worker's key", "name another folder: what it has is copied elsewhere")
    export_to(settings, key, store_target(settings.data, folder, named))
    text = f"{folder} has what {named} needs to watch over {key.address}. Copy it there; a running worker renews it."
    Journal(as_json).report("watch_exported", text, folder=str(folder), watcher=named, worker=key.address)


def watch(
    folders: Annotated[
        list[Path], typer.Argument(parser=parse_place, metavar="FOLDER...", help="What `wallet export-watch` wrote.")
    ],
    once: Annotated[bool, typer.Option("--once", help="Look once; end with 1 if anything is left undone.")] = False,
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch over workers that are offline: contest accusations, and redeem vouchers before their claims end.

    `--data` has this watchtower's own key (`gradmarket wallet new`), which needs gas money and can do nothing else.
    """
    settings = settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file)
    settings, journal = add_wallet_passphrase(settings), Journal(as_json)
    key = wallet.load_wallet(settings.data, settings.secret)
    with durable.lock_worker_folder(settings.data):
        tower = Watchtower(settings, key, folders, journal)
        read = tower.look()
        if not tower.workers:
            named = " and ".join(map(str, folders))
            raise Refused(
                f"{named} has no export for {key.address}, so it has no worker to watch",
                f"on the worker's machine: `gradmarket wallet export-watch FOLDER --watcher {key.address}`",
            )
        text = f"{key.address} watches over {', '.join(tower.workers)}."
        journal.report("watching", text, watcher=key.address, workers=tower.workers)
        if once:
            while not read:
                read = tower.look()
            raise typer.Exit(1 if tower.troubled else 0)
        over = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: over.set())
        tower.run(over)


class WatchtowerFeature(WorkerFeature):
    name = "watchtower"
    needs = ("stakes",)
    wallet_commands = {"watch": watch, "export-watch": export_watch}

    def run_beside(self, shared: Shared) -> AbstractContextManager[object]:
        return ExportSync(shared.settings, shared.wallet, shared.journal).running()
