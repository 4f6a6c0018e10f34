"""`gradmarket migrate`: upgrades the database before the service's processes start; each of them would do so too."""

import time
from typing import Annotated, Final

import typer
from sqlalchemy.exc import OperationalError

from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.commands.edge import JsonOption, print_json
from gradmarket.terminal import echo_text
from gradmarket.user_files import settings_from
from requester.settings import RequesterSettings
from requester.store import schema
from requester.store.schema import check_unfinished
from requester.store.session import open_engine

PAUSE_S: Final = 0.5


def migrate(
    wait_s: Annotated[
        float, typer.Option("--wait-s", min=0, max=86_400, help="How long a database that is not up yet is tried.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Bring the database that the settings name to this version's tables; several at once do no harm."""
    until = time.monotonic() + wait_s
    engine = open_engine(settings_from(RequesterSettings, {}).database_url)
    try:
        while True:
            try:
                check_unfinished(engine)
                schema.upgrade_schema(engine)
                break
            except OperationalError as error:
                if time.monotonic() > until:
                    raise ServiceUnreachable(f"the database, after {wait_s:.0f} s: {error.orig}") from error
            time.sleep(PAUSE_S)
    finally:
        engine.dispose()
    if as_json:
        print_json({"migrated": True})
    else:
        echo_text("The database is up to date.")
