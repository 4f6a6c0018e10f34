"""Encrypts a key that lies in plain text, and copies the key's file: until then every start reminds of it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from contracts import keystore
from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.terminal import echo_text
from gradmarket.user_files import parse_place
from worker import durable, wallet
from worker.feature import WorkerFeature
from worker.options import DataOption, JsonOption, PassphraseOption, print_wallet, settings_of
from worker.wallet import Wallet


def encrypt(data: DataOption = None, passphrase_file: PassphraseOption = None, as_json: JsonOption = False) -> None:
    """Put a key that lies in plain text under a passphrase."""
    settings = settings_of(data=data, passphrase_file=passphrase_file)
    secret = settings.secret or keystore.ask_passphrase("the wallet", twice=True)
    if secret is None:
        raise Refused("there is no terminal to ask for a passphrase on: give --passphrase-file")
    print_wallet(encrypt_wallet(settings.data, secret), as_json)


def backup(
    to: Annotated[
        Path,
        typer.Argument(
            parser=parse_place, metavar="TO", help="A folder elsewhere, such as a USB stick's, or a new file."
        ),
    ],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the key's file; until then every start reminds of it. The way back: copy it into the folder."""
    copy = back_up(settings_of(data=data).data, to)
    echo_text(json.dumps({"backup": str(copy)}) if as_json else f"The key is in {copy} too. Let nobody else read it.")


def encrypt_wallet(folder: Path, passphrase: str) -> Wallet:
    """Encrypts a plain key. Deletes the plain file once the keystore is on disk and can be opened.

    Raises NotFound without a key, Conflict if it is already encrypted.
    """
    path = wallet.find_key_file(folder)
    if path is not None and path.name == wallet.ENCRYPTED:
        raise Conflict(f"{path} is encrypted already")
    plain = wallet.load_wallet(folder, passphrase)
    encrypted = wallet.write_wallet(folder, plain.key, passphrase)
    if wallet.load_wallet(folder, passphrase) == encrypted:
        plain.path.unlink()
    return encrypted


def back_up(folder: Path, to: Path) -> Path:
    """Copies the key's file to `to`, a folder or a new file; from then on no start reminds of it. Returns the copy's
    path.

    Raises NotFound without a key, Refused if `to` is in the worker's own folder or in none, Conflict if it has another
    file.
    """
    path = wallet.find_key_file(folder)
    if path is None:
        raise NotFound(f"no wallet in {folder}", "name the worker's folder with --data")
    copy = to / path.name if to.is_dir() else to
    if copy.resolve().is_relative_to(folder.resolve()):
        raise Refused(f"{copy} is lost together with {folder}", "name a folder elsewhere, such as a USB stick's")
    if not copy.absolute().parent.is_dir():
        raise Refused(f"there is no folder {copy.absolute().parent}", "make it, or name another one")
    data = path.read_bytes()
    if copy.exists() and copy.read_bytes() != data:
        raise Conflict(f"{copy} is there already, and is another file", "name another file")
    durable.write_file_atomically(copy, data)
    durable.write_file_atomically(folder / wallet.BACKED_UP, wallet.compute_digest_line(data))
    return copy


class KeyCareFeature(WorkerFeature):
    name = "key_care"
    wallet_commands = {"encrypt": encrypt, "backup": backup}
