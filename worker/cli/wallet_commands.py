"""`gradmarket wallet …`: a worker's key, its earnings, and the honesty of its requesters."""

import json
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from contracts import keystore
from gradmarket.market.errors import Refused
from gradmarket.terminal import echo_text
from worker import wallet
from worker.feature import WalletLine
from worker.features import FEATURES
from worker.money.account_store import check_a_key_may_be_made, open_account_store
from worker.money.session_summary import sum_accounts
from worker.options import (
    DataOption,
    JsonOption,
    PassphraseOption,
    PlainOption,
    RpcOption,
    add_wallet_passphrase,
    settings_of,
)
from worker.wallet import Wallet

app = typer.Typer(no_args_is_help=True, help="The worker's key, and what it has earned.")


@app.command()
def new(
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    plain: PlainOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a key, encrypted with a passphrase from a file, GRADMARKET_WORKER_PASSPHRASE, or the keyboard."""
    settings = settings_of(data=data, passphrase_file=passphrase_file)
    check_a_key_may_be_made(settings.data)
    secret = None if plain else settings.secret or keystore.ask_passphrase("the new wallet", twice=True)
    if secret is None and not plain:
        raise Refused("there is no terminal to ask for a passphrase on: give --passphrase-file, or pass --plain-key")
    _print_wallet(wallet.create_wallet(settings.data, secret), as_json)


@app.command()
def encrypt(data: DataOption = None, passphrase_file: PassphraseOption = None, as_json: JsonOption = False) -> None:
    """Put a key that lies in plain text under a passphrase."""
    settings = settings_of(data=data, passphrase_file=passphrase_file)
    secret = settings.secret or keystore.ask_passphrase("the wallet", twice=True)
    if secret is None:
        raise Refused("there is no terminal to ask for a passphrase on: give --passphrase-file")
    _print_wallet(wallet.encrypt_wallet(settings.data, secret), as_json)


@app.command()
def backup(
    to: Annotated[Path, typer.Argument(help="A folder elsewhere, such as a USB stick's, or a new file.")],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the key's file; until then every start reminds of it. The way back: copy it into the folder."""
    copy = wallet.back_up(settings_of(data=data).data, to)
    echo_text(json.dumps({"backup": str(copy)}) if as_json else f"The key is in {copy} too. Let nobody else read it.")


@app.command()
def show(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """The address, how to back its key up, and for every job what was earned, vouchered, settled and redeemed."""
    settings = add_wallet_passphrase(settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file))
    key = wallet.load_wallet(settings.data, settings.secret)
    warn = partial(echo_text, err=True)
    more: dict[str, Sequence[WalletLine]] = {}
    for feature in FEATURES:
        more |= feature.list_wallet_lines(settings, key.address, warn)
    if as_json:
        sums = sum_accounts(open_account_store(settings.data, key.address).accounts)
        money = {"earned": str(sums.earned), "redeemed": str(sums.redeemed)}
        counts = {"accepted": sums.accepted, "rejected": sums.rejected}
        lists = {name: [dict(line.fields) for line in lines] for name, lines in more.items()}
        echo_text(json.dumps({**_build_wallet_facts(key), **money, **counts, **lists}))
        return
    echo_text(key.describe_key_file())
    for line in chain.from_iterable(more.values()):
        echo_text(line.text)


def _build_wallet_facts(key: Wallet) -> dict[str, object]:
    return {"address": key.address, "path": str(key.path), "encrypted": key.encrypted}


def _print_wallet(key: Wallet, as_json: bool) -> None:
    echo_text(json.dumps(_build_wallet_facts(key)) if as_json else key.describe_key_file())
