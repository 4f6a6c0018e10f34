"""`gradmarket worker` and `gradmarket wallet`: the worker, its key, its earnings, the honesty of its requesters.

Every option may also be set in the environment as GRADMARKET_WORKER_….
"""

import json
import os
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts import OTHERS, keystore
from gradmarket.market.errors import Refused
from gradmarket.terminal import echo_text
from worker import wallet
from worker.feature import WalletLine
from worker.features import FEATURES
from worker.journal import Journal
from worker.money.account_store import check_a_key_may_be_made, open_account_store
from worker.money.session_summary import sum_accounts
from worker.options import (
    DataOption,
    DeviceOption,
    JsonOption,
    PassphraseOption,
    PlainOption,
    RpcOption,
    add_wallet_passphrase,
    build_wallet_facts,
    print_wallet,
    settings_of,
)
from worker.run import run_worker
from worker.signals import LeaveNow

app = typer.Typer(no_args_is_help=True, help="Sell gradients: run a worker, look after its wallet.")
wallet_app = typer.Typer(no_args_is_help=True, help="The worker's key, and what it has earned.")
app.add_typer(wallet_app, name="wallet")


@wallet_app.command()
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


@wallet_app.command()
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


for feature in FEATURES:
    for name, command in feature.commands.items():
        app.command(name)(command)
    for name, offered in feature.wallet_commands.items():
        if isinstance(offered, typer.Typer):
            wallet_app.add_typer(offered, name=name)
        else:
            wallet_app.command(name)(offered)

MarketOption = Annotated[
    list[str] | None, typer.Option("--market", help="Address of a requester's service; may be repeated.")
]
DiscoverOption = Annotated[bool, typer.Option("--discover", help="Find markets on the chain (needs --rpc).")]
TokenOption = Annotated[
    list[str] | None, typer.Option("--token", help="Token that a discovered market may pay in; may be repeated.")
]
SinceOption = Annotated[int | None, typer.Option("--since", help="Look for markets from this block on.")]
PayoutOption = Annotated[str | None, typer.Option("--payout", help="Where earnings go, if not to the worker itself.")]
ConsentOption = Annotated[
    list[Path] | None, typer.Option("--consent", help="File of the payout key's consent; may be repeated.")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="Threads of a step; part of the class.")]
MemoryOption = Annotated[int | None, typer.Option("--max-memory", help="Bytes that a step may take.")]
DiskOption = Annotated[int | None, typer.Option("--max-disk", help="Bytes that downloads may take.")]
TflopOption = Annotated[str | None, typer.Option("--min-per-tflop", help="Least pay for 10^12 operations; 1 GRAD.")]
HourOption = Annotated[str | None, typer.Option("--min-per-hour", help="Least pay for an hour at your own speed.")]
PriceOption = Annotated[str | None, typer.Option("--min-price", help="Least pay for a gradient, like 0.01 GRAD.")]
PageOption = Annotated[int | None, typer.Option("--page", help="Port of a page about it, on this machine alone.")]
HoursOption = Annotated[str | None, typer.Option("--hours", help="Times of day to take tasks at, like 22-6.")]
IdleOption = Annotated[bool, typer.Option("--idle", help="Take tasks only while no other program uses the machine.")]
WattsOption = Annotated[float | None, typer.Option("--max-watts", help="Take no task while a card draws more.")]
CelsiusOption = Annotated[int | None, typer.Option("--max-celsius", help="Take no task while a card is warmer.")]
JobOption = Annotated[list[str] | None, typer.Option("--job", help="Work for this job only; may be repeated.")]
DatasetOption = Annotated[
    Path | None, typer.Option("--dataset", help="Packed folder of your own rows, for a private job; never sent.")
]
ForOption = Annotated[str | None, typer.Option("--for", help="The private job that the dataset is for.")]
RowEpsilonOption = Annotated[
    float | None,
    typer.Option("--row-epsilon", help="The most that all jobs together may disclose of a row of the dataset."),
]
RowDeltaOption = Annotated[float | None, typer.Option("--row-delta", help="The delta at which that is counted.")]
HideOption = Annotated[bool, typer.Option("--hide-rows", help="Do not send the dataset's number of rows.")]


@app.command("run")
def run_command(
    market: MarketOption = None,
    discover: DiscoverOption = False,
    token: TokenOption = None,
    since: SinceOption = None,
    rpc: RpcOption = None,
    payout: PayoutOption = None,
    consent: ConsentOption = None,
    data: DataOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    max_memory: MemoryOption = None,
    max_disk: DiskOption = None,
    min_price: PriceOption = None,
    min_per_tflop: TflopOption = None,
    min_per_hour: HourOption = None,
    hours: HoursOption = None,
    idle: IdleOption = False,
    max_watts: WattsOption = None,
    max_celsius: CelsiusOption = None,
    job: JobOption = None,
    dataset: DatasetOption = None,
    for_: ForOption = None,
    hide_rows: HideOption = False,
    row_epsilon: RowEpsilonOption = None,
    row_delta: RowDeltaOption = None,
    page: PageOption = None,
    passphrase_file: PassphraseOption = None,
    plain_key: PlainOption = False,
    as_json: JsonOption = False,
) -> None:
    """Work for markets, the best paying first, until the first SIGTERM or SIGINT, which finishes work in flight.

    A second signal leaves now.
    """
    markets = list(market or ())
    places = {"market": markets[0] if markets else None, "markets": markets[1:] or None}
    options: dict[str, Any] = {**places, "discover": discover or None, "since": since, "tokens": token or None}
    options |= {"rpc": rpc, "payout": payout, "consents": consent or None, "data": data}
    options |= {"device": device, "threads": threads, "min_price": min_price}
    options |= {"min_per_tflop": min_per_tflop, "min_per_hour": min_per_hour}
    options |= {"hours": hours, "idle": idle or None, "max_watts": max_watts, "max_celsius": max_celsius}
    options |= {"dataset": dataset, "tell_rows": False if hide_rows else None}
    options |= {"row_epsilon": row_epsilon, "row_delta": row_delta}
    jobs = [*(job or ()), *([] if for_ is None else [for_])] or None
    keys = {"passphrase_file": passphrase_file, "plain_key": plain_key or None}
    settings = settings_of(**options, **keys, max_memory=max_memory, max_disk=max_disk, jobs=jobs, page=page)
    os.umask(OTHERS)
    try:
        done = run_worker(add_wallet_passphrase(settings), journal=Journal(as_json, timed=True))
    except LeaveNow as left:
        Journal(as_json, timed=True).report("left", "Left at once, before it took any work.")
        raise typer.Exit(1) from left
    raise typer.Exit(0 if done.finished else 1)
