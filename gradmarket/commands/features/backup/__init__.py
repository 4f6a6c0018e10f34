"""`gradmarket backup` and `gradmarket restore`: copy the embedded service's data while it runs, and restore a copy."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gradmarket.commands.edge import DataOption, JsonOption, print_json
from gradmarket.endpoint import data_folder
from gradmarket.terminal import echo_text
from requester.features.backup import BackupEntry, describe_missing_chain
from requester.features.backup import create_backup as copy
from requester.features.backup import restore_backup as bring_back


def backup(
    to: Annotated[Path, typer.Option(help="A new folder for the copy")],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy database, blobs and keys into a new folder, while the service goes on."""
    _print_backup(copy(data_folder(data), to), as_json, f"kept in {to}")


def restore(
    kept: Annotated[Path, typer.Option("--from", help="The folder of a backup")],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a backup, and copy it into a new data folder."""
    folder = data_folder(data)
    if missing := describe_missing_chain(kept):
        echo_text(missing, err=True)
    _print_backup(bring_back(kept, folder), as_json, f"restored; go on with: gradmarket serve --data {folder}")


def _print_backup(kept: BackupEntry, as_json: bool, then: str) -> None:
    if as_json:
        print_json(asdict(kept))
        return
    echo_text(f"{kept.blobs} blobs ({kept.blob_bytes} bytes), {kept.keys} keys, {kept.database_bytes} bytes of rows")
    echo_text("the local chain too" if kept.chain else "no chain: its node keeps it")
    echo_text(then)
