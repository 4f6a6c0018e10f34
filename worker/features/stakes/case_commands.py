"""`gradmarket wallet case …`: accusations against this wallet, and those that it decides as a validator."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from contracts.ledger import Ledger
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import JobId
from gradmarket.terminal import echo_text
from worker import wallet
from worker.features.stakes import cases
from worker.features.stakes.examine import examine_case, read_heard_case
from worker.features.stakes.stake import Offered, check_job_on_chain, fetch_court
from worker.journal import Journal
from worker.money import known_chains
from worker.money.chain_view import ledger_of
from worker.options import (
    DataOption,
    JsonOption,
    MarketOption,
    PassphraseOption,
    RpcOption,
    add_wallet_passphrase,
    settings_of,
)
from worker.wallet import Wallet

app = typer.Typer(no_args_is_help=True, help="Accusations: against this wallet, or for it to decide.")

CaseArgument = Annotated[str, typer.Argument(help="The case: 0x and 64 hex digits.")]


@app.command("list")
def list_command(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every accusation against this wallet, and until when it can be contested or decided."""
    settings = add_wallet_passphrase(settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file))
    me, found = wallet.load_wallet(settings.data, settings.secret).address, False
    for facts in known_chains.list_known_chains(settings.data):
        money = TokenUnit.of(facts)
        for case in cases.list_cases_against(ledger_of(settings.node, facts), me):
            until = f"{datetime.fromtimestamp(case.until, UTC):%Y-%m-%d %H:%M} UTC"
            text = f"{case.case}: {money.text(int(case.amount))} of job {case.chain_job}, {case.stage} until {until}"
            Journal(as_json).report("case", text, **asdict(case))
            found = True
    if not found and not as_json:
        echo_text("There is no accusation against this wallet on the chains of the markets that it worked for.")


@app.command()
def contest(
    case: Annotated[str | None, typer.Argument(help="One case; every open one where none is named.")] = None,
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Contest: then the job's validators decide, not the requester alone. An uncontested case slashes the stake."""
    settings = add_wallet_passphrase(settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file))
    key = wallet.load_wallet(settings.data, settings.secret)
    for facts in known_chains.list_known_chains(settings.data):
        for name in cases.contest_cases(ledger_of(settings.node, facts), key.key, case):
            Journal(as_json).report("contested", f"{name} is contested; the validators will rule on it.", case=name)


@app.command("examine")
def examine_command(
    job: Annotated[str, typer.Argument(help="The job's id at the market.")],
    case: CaseArgument,
    rule: Annotated[bool, typer.Option("--rule", help="Rule as it comes out, as a validator of the job.")] = False,
    market: MarketOption = None,
    ruling: Annotated[list[str] | None, typer.Option(help="Another validator's ruling; may be repeated.")] = None,
    heard: Annotated[
        Path | None,
        typer.Option(help="File of `wallet dispute judge --to`, by this wallet: decides without computing the task."),
    ] = None,
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the published evidence of a case against the chain, compute its task anew, and rule on it.

    Ends with 1, without a ruling, where this machine cannot decide.
    """
    case_heard = None if heard is None else read_heard_case(heard)
    settings = settings_of(market=market, rpc=rpc, data=data, passphrase_file=passphrase_file)
    settings = add_wallet_passphrase(settings)
    key, listed = (
        wallet.load_wallet(settings.data, settings.secret),
        fetch_court(str(settings.market), JobId(job)),
    )
    ledger = ledger_of(settings.node, listed.facts, str(settings.market))
    check_job_on_chain(ledger, key.address, listed)
    result = examine_case(settings, key, ledger, JobId(job), listed, case, case_heard)
    word = "GUILTY" if result.guilty else "Not guilty"
    Journal(as_json).report("examined", f"{word}: {result.why}.", case=case, **asdict(result))
    if rule:
        _sign_and_send_ruling(ledger, key, listed, case, result.guilty, ruling or [], as_json)


@app.command()
def rule(
    job: Annotated[str, typer.Argument(help="The job's id at the market.")],
    case: CaseArgument,
    guilty: Annotated[bool, typer.Option("--guilty/--not-guilty", help="Whether the gradient was wrong.")],
    market: MarketOption = None,
    ruling: Annotated[list[str] | None, typer.Option(help="Another validator's ruling; may be repeated.")] = None,
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """As a validator of the job: sign a ruling, and send it once as many agree as the job asks for."""
    settings = add_wallet_passphrase(settings_of(market=market, rpc=rpc, data=data, passphrase_file=passphrase_file))
    key, listed = (
        wallet.load_wallet(settings.data, settings.secret),
        fetch_court(str(settings.market), JobId(job)),
    )
    ledger = ledger_of(settings.node, listed.facts, str(settings.market))
    check_job_on_chain(ledger, key.address, listed)
    _sign_and_send_ruling(ledger, key, listed, case, guilty, ruling or [], as_json)


def _sign_and_send_ruling(
    ledger: Ledger, key: Wallet, job: Offered, case: str, guilty: bool, others: list[str], as_json: bool
) -> None:
    done = cases.sign_and_send_ruling(ledger, key.key, job, case, guilty, others)
    text = f"Decided: {case} is {'guilty' if guilty else 'not guilty'}." if done.decided else done.ruling
    Journal(as_json).report("decided" if done.decided else "ruled", text, case=case, ruling=done.ruling)
