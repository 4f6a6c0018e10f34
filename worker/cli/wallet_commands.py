"""`gradmarket wallet …`: a worker's key, what it has earned, and whether its requesters told the truth."""

import json
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from gradmarket.contracts import keystore
from gradmarket.market.errors import Refused
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Amount, JobId
from gradmarket.worker import wallet
from gradmarket.worker.cli import case_commands, consent_commands
from gradmarket.worker.cli.options import (
    DataOption,
    JsonOption,
    PassphraseOption,
    PlainOption,
    RpcOption,
    settings_of,
    told,
    unlocked,
)
from gradmarket.worker.journal import Journal
from gradmarket.worker.money import accusation_watch, known_chains
from gradmarket.worker.money.account_store import AccountStore
from gradmarket.worker.money.chain_view import ledger_of
from gradmarket.worker.money.job_standing import accusations, staked, standings
from gradmarket.worker.money.redeem_all import redeem_all
from gradmarket.worker.money.self_check import SelfCheck
from gradmarket.worker.money.session_summary import totals
from gradmarket.worker.money.stake import Bounds, Pledge, offered
from gradmarket.worker.wallet import Wallet

app = typer.Typer(no_args_is_help=True, help="The worker's key, and what it has earned.")
app.add_typer(case_commands.app, name="case")
app.add_typer(consent_commands.app, name="consent")


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
        warn = partial(typer.echo, err=True)
        jobs, risks = list(standings(settings, key.address)), list(staked(settings, key, warn))
        accused = list(accusations(settings, key.address, warn))
        if as_json:
            sums = totals(AccountStore(settings.data / "book.json").accounts)
            money = {"earned": str(sums.earned), "redeemed": str(sums.redeemed)}
            counts = {"accepted": sums.accepted, "rejected": sums.rejected}
            lists = {"jobs": [asdict(job) for job, _ in jobs], "stakes": [asdict(risk) for risk in risks]}
            lists["accusations"] = [asdict(case) for case in accused]
            typer.echo(json.dumps({**_facts(key), **money, **counts, **lists}))
            return
    typer.echo(key.backup())
    for job, token in jobs:
        typer.echo(job.text(token))
    for risk in risks:
        typer.echo(risk.text())
    for case in accused:
        typer.echo(case.text())


@app.command()
def stake(
    job: Annotated[str, typer.Argument(help="The job's id at the market.")],
    amount: Annotated[int, typer.Argument(min=1, help="In the token's smallest unit.")],
    market: Annotated[str | None, typer.Option(help="Address of the requester's service.")] = None,
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put money at risk in a job: it is slashed if an audit finds the worker's gradient wrong and it does not contest.

    Under `adaptive` replication it buys work of one's own, audited less as the record grows.
    """
    settings = settings_of(market=market, rpc=rpc, data=data, passphrase_file=passphrase_file)
    with told():
        settings = unlocked(settings)
        key, listed = wallet.load(settings.data, settings.secret), offered(str(settings.market), JobId(job))
        ledger = ledger_of(settings.node, listed.facts)
        known_chains.keep(settings.data, listed.facts)
        accusation_watch.begin(settings.data, listed.facts, ledger, key.address)
        bounds = Bounds(settings.stake_contest_s, settings.stake_lock_s)
        Pledge(ledger, key.key).put(listed, Amount(amount), bounds)
        sum_ = TokenUnit.of(listed.facts).text(amount)
        deciding = f"{listed.terms.threshold} of {', '.join(listed.terms.validators)}"
        text = f"{sum_} at risk in job {job}; a contested accusation is decided by {deciding}."
        Journal(as_json).say("staked", text, job=job, chain_job=listed.chain_job, amount=str(amount))


@app.command()
def unstake(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Leave every job, and take out of the stake what no job can slash any more. Once more when the locks are over."""
    settings, journal = settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file), Journal(as_json)
    with told():
        settings = unlocked(settings)
        key = wallet.load(settings.data, settings.secret)
        for facts in known_chains.kept(settings.data):
            pledge = Pledge(ledger_of(settings.node, facts), key.key)
            out = pledge.take_out(lambda text: journal.say("left", text))
            journal.say("unstaked", f"{TokenUnit.of(facts).text(out)} taken out.", amount=str(out))
        for risk in staked(settings, key, partial(typer.echo, err=True)):
            journal.say("locked", risk.text(), **asdict(risk))


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
        sound = SelfCheck(settings, Journal(as_json), market).run()
    raise typer.Exit(0 if sound else 1)


@app.command()
def redeem(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Redeem every voucher in the accounts, with no market needed."""
    with told():
        done = redeem_all(unlocked(settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file)), Journal(as_json))
    raise typer.Exit(0 if done else 1)


def _facts(key: Wallet) -> dict[str, object]:
    return {"address": key.address, "path": str(key.path), "encrypted": key.encrypted}


def _show(key: Wallet, as_json: bool) -> None:
    typer.echo(json.dumps(_facts(key)) if as_json else key.backup())
