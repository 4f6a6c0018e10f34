"""`gradmarket wallet …`: a worker's key, its earnings, and the honesty of its requesters."""

import json
from collections.abc import Sequence
from functools import partial
from itertools import chain

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
    build_wallet_facts,
    print_wallet,
    settings_of,
)

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
    print_wallet(wallet.create_wallet(settings.data, secret), as_json)


@app.command()
def show(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the address, the backup of its key, and every job's earned, vouchered, settled and redeemed pay."""
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
        echo_text(json.dumps({**build_wallet_facts(key), **money, **counts, **lists}))
        return
    echo_text(key.describe_key_file())
    for line in chain.from_iterable(more.values()):
        echo_text(line.text)
