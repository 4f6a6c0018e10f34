"""Keeps a worker's export for its watchtower up to date, in a thread of its own, while the worker runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, ValidationError

from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.fields import AddressField, DeferredModel
from gradmarket.market.terms import Address
from worker import durable
from worker.features.stakes.accusation_watch import running_thread
from worker.features.watchtower.watch_export import build_export, measure_folder, write_export
from worker.journal import Journal
from worker.settings import WorkerSettings
from worker.wallet import Wallet

TARGET: Final = "watch-export.json"


class ExportTarget(DeferredModel):
    """The folder of the worker's export, and its watcher."""

    model_config = ConfigDict(frozen=True)
    folder: Path
    watcher: AddressField


class ExportSync:
    """Writes the export anew whenever the accounts or the records have changed."""

    def __init__(self, settings: WorkerSettings, wallet: Wallet, journal: Journal) -> None:
        self._settings, self._wallet, self._journal = settings, wallet, journal
        self._written: object = None
        self._over = threading.Event()

    @contextmanager
    def running(self) -> Iterator["ExportSync"]:
        """Syncs every `upkeep_s` seconds until the `with` block ends, and then once more."""
        try:
            with running_thread("watch-export", self._run_until_stopped, self._over):
                yield self
        finally:
            self.sync()

    def sync(self) -> None:
        """Writes the export if requested and changed; a failure is logged, and the next sync tries again."""
        try:
            target = load_target(self._settings.data)
            now = target, measure_folder(self._settings.data)
            if target is not None and now != self._written:
                export_to(self._settings, self._wallet, target)
                self._written = now
        except (MarketError, OSError) as error:
            text = f"The export for the watchtower is not up to date: {error}. It is tried again."
            with suppress(OSError):  # the log's disk may be full, and the next sync tries again nevertheless
                self._journal.once("watch_export", text)

    def _run_until_stopped(self) -> None:
        self.sync()
        while not self._over.wait(self._settings.upkeep_s):
            self.sync()


def export_to(settings: WorkerSettings, wallet: Wallet, target: ExportTarget) -> None:
    write_export(settings.data, build_export(settings, wallet, target.watcher), target.folder)


def store_target(data: Path, folder: Path, watcher: Address) -> ExportTarget:
    """Stores the folder of the worker's export from now on."""
    target = ExportTarget(folder=folder.absolute(), watcher=watcher)
    durable.write_file_atomically(data / TARGET, target.model_dump_json().encode())
    return target


def load_target(data: Path) -> ExportTarget | None:
    """Returns the stored target; None where no export was requested. Raises Refused where the file is damaged."""
    path = data / TARGET
    if not path.is_file():
        return None
    try:
        return ExportTarget.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise Refused(f"{path} is damaged", "run `gradmarket wallet export-watch` again") from error
