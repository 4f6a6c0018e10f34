"""`gradmarket backup` and `gradmarket restore`: copy the embedded service's data while it runs, and restore a copy."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gradmarket.commands.edge import DataOption, JsonOption, say_json
from gradmarket.endpoint import data_folder
from gradmarket.terminal import echo
from requester.backup import BackupEntry, lacks
from requester.backup import backup as copy
from requester.backup import restore as bring_back


def backup(
    to: Annotated[Path, typer.Option(help="A new folder for the copy")],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy database, blobs and keys into a new folder, while the service goes on."""
    _say(copy(data_folder(data), to), as_json, f"kept in {to}")


def restore(
    kept: Annotated[Path, typer.Option("--from", help="The folder of a backup")],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a backup, and copy it into a new data folder."""
    folder = data_folder(data)
    if missing := lacks(kept):
        echo(missing, err=True)
    _say(bring_back(kept, folder), as_json, f"restored; go on with: gradmarket serve --data {folder}")


def _say(kept: BackupEntry, as_json: bool, then: str) -> None:
    if as_json:
        say_json(asdict(kept))
        return
    echo(f"{kept.blobs} blobs ({kept.blob_bytes} bytes), {kept.keys} keys, {kept.database_bytes} bytes of rows")
    echo("the local chain too" if kept.chain else "no chain: its node keeps it")
    echo(then)
