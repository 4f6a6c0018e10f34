"""`gradmarket wallet …`: a worker's key, what it has earned, and whether its requesters told the truth."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from pydantic import SecretStr

from gradmarket.contracts import keystore
from gradmarket.market.errors import Refused
from gradmarket.worker import wallet
from gradmarket.worker.options import (
    DataOption,
    JsonOption,
    PassphraseOption,
    PlainOption,
    RpcOption,
    settings_of,
    told,
)
from gradmarket.worker.redeem import redeem_all
from gradmarket.worker.report import Journal, totals
from gradmarket.worker.settings import Settings
from gradmarket.worker.standing import standings
from gradmarket.worker.verify import Verifier
from gradmarket.worker.vouchers import Book
from gradmarket.worker.wallet import Wallet

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
    with told():
        secret = None if plain else settings.secret or keystore.asked("the new wallet", twice=True)
        if secret is None and not plain:
            raise Refused("nobody can be asked for a passphrase here: give --passphrase-file, or say --plain-key")
        _show(wallet.create(settings.data, secret), as_json)


@app.command()
def encrypt(data: DataOption = None, passphrase_file: PassphraseOption = None, as_json: JsonOption = False) -> None:
    """Put a key that lies in plain text under a passphrase."""
    settings = settings_of(data=data, passphrase_file=passphrase_file)
    with told():
        secret = settings.secret or keystore.asked("the wallet", twice=True)
        if secret is None:
            raise Refused("nobody can be asked for a passphrase here: give --passphrase-file")
        _show(wallet.encrypt(settings.data, secret), as_json)


@app.command()
def show(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """The address, how to back its key up, and for every job what was earned, vouchered, settled and redeemed."""
    with told():
        settings = unlocked(settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file))
        key = wallet.load(settings.data, settings.secret)
        jobs = list(standings(settings, key.address))
        if as_json:
            sums = totals(Book(settings.data / "book.json").accounts)
            money = {"earned": str(sums.earned), "redeemed": str(sums.redeemed)}
            counts = {"accepted": sums.accepted, "rejected": sums.rejected}
            typer.echo(json.dumps({**_facts(key), **money, **counts, "jobs": [asdict(job) for job, _ in jobs]}))
            return
    typer.echo(key.backup())
    for job, token in jobs:
        typer.echo(job.text(token))


@app.command()
def verify(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    market: Annotated[bool, typer.Option(help="Hold what the markets publish against the records, too.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Prove everything anew by your own node: signatures, secrets, commitments, batches, vouchers, reservations.

    Names each lie of a requester, and ends with 1 if there is one, or a chain does not answer.
    """
    with told():
        settings = unlocked(settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file))
        sound = Verifier(settings, Journal(as_json), market).run()
    raise typer.Exit(0 if sound else 1)


@app.command()
def redeem(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Redeem every voucher in the book, with no market needed."""
    with told():
        done = redeem_all(unlocked(settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file)), Journal(as_json))
    raise typer.Exit(0 if done else 1)


def unlocked(settings: Settings) -> Settings:
    """With the passphrase from the keyboard, where the wallet needs one and none is given."""
    path = wallet.find(settings.data)
    if path is None or path.name != wallet.ENCRYPTED or settings.secret is not None:
        return settings
    typed = keystore.asked(str(path))
    return settings if typed is None else settings.model_copy(update={"passphrase": SecretStr(typed)})


def _facts(key: Wallet) -> dict[str, object]:
    return {"address": key.address, "path": str(key.path), "encrypted": key.encrypted}


def _show(key: Wallet, as_json: bool) -> None:
    typer.echo(json.dumps(_facts(key)) if as_json else key.backup())
