"""`gradmarket serve`: the service, by default in one process; with stages=celery, its API alone."""

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
import uvicorn

from gradmarket.terminal import echo_text
from gradmarket.user_files import settings_from
from requester.app import create_app
from requester.context import Context
from requester.engine import StageEngine, stages_with
from requester.feature import features_of
from requester.folder_lock import lock_data_folder
from requester.serving import EVERYWHERE, build_join_command, build_server_config, open_listener, own_url
from requester.settings import RequesterSettings
from requester.wiring import configure_logging, open_context, open_relay

COLLECT: Final = (20_000, 20, 100)
"""Rows and answers are mostly freed by counting: with Python's own thresholds collections take 5 % of the CPU."""


def serve(
    data: Annotated[Path | None, typer.Option(help="Folder of database, blobs, keys and the local chain")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 for any")] = None,
    rpc: Annotated[str | None, typer.Option(help="The chain's JSON-RPC; a local Anvil of its own if none")] = None,
    auditor: Annotated[
        str | None, typer.Option(help="Device of its own auditor: auto, cpu, cuda; none: no auditor")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Log as JSON lines")] = False,
) -> None:
    """Serve jobs to workers: API, stages and, where no chain is configured, a local Anvil."""
    options = {"data": data, "host": host, "port": port, "rpc": rpc, "auditor": auditor}
    settings = settings_from(RequesterSettings, options)
    configure_logging(json, settings.log)
    alone = settings.database_url.startswith("sqlite")
    os.umask(settings.hidden)
    with lock_data_folder(settings.data, alone, settings.hidden), open_listener(settings.host, settings.port) as socket:
        here = own_url(settings.host, socket.getsockname()[1])
        url = settings.url or here
        with open_context(settings, url, open_relay(settings)) as context:
            app = create_app(context, lambda: _run_beside(context, here))
            # the service's addresses; commands on the same machine find the URL in a file
            write_address(settings.data / "url", url)
            facts = context.chain_facts
            echo_text(f"gradmarket serves {url} (docs at {url}/docs)")
            echo_text(f"  data   {settings.data.resolve()} (the API token is in {settings.data / 'keys' / 'token'})")
            echo_text(f"  chain  {facts.chain_id} at {facts.rpc or settings.rpc}, contract {facts.contract}")
            for feature in features_of(context):
                for word, text in feature.describe_start(settings).items():
                    echo_text(f"  {word:<6} {text}")
            echo_text(f"  join   {build_join_command(url, facts)}")
            if settings.url is None and settings.host.strip("[]") in EVERYWHERE:
                echo_text(
                    "  others on other machines: set GRADMARKET_URL to the address that they reach this one under"
                )
            gc.freeze()  # the objects made so far stay: scanning them takes 145 ms at each collection
            gc.set_threshold(*COLLECT)
            config = build_server_config(app, settings, features_of(context))
            Server(config, (context.chain_worker.retire, context.notifier.close)).run([socket])
        if settings.rpc is None:
            echo_text(f"Stopped. The local chain goes on: `gradmarket chain down --data {settings.data}` stops it.")


class Server(uvicorn.Server):
    """Calls all of `endings` on a signal, and does not raise the signal again, so that everything is closed too."""

    def __init__(self, config: uvicorn.Config, endings: Sequence[Callable[[], None]]) -> None:
        super().__init__(config)
        self._endings = endings

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._handle_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        self.handle_exit(number, frame)
        for end in self._endings:
            end()


@contextmanager
def _run_beside(context: Context, here: str) -> Iterator[None]:
    """Runs the stages, unless Celery does, and the features' side work; `here` is the service's address on this
    machine.
    """
    with ExitStack() as stack:
        for feature in features_of(context):
            stack.enter_context(feature.serve_beside(context, here))
        if context.settings.stages == "embedded":
            stack.enter_context(StageEngine(context, tuple(stages_with(features_of(context)).values())))
        yield


def write_address(path: Path, url: str) -> None:
    """Writes the file atomically: a process that waits for it never reads half of it."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(url + "\n")
    beside.replace(path)
