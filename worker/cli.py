"""The worker's commands. Every option may also be set in the environment as GRADMARKET_WORKER_…."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from gradmarket.market.errors import MarketError
from gradmarket.worker import wallet
from gradmarket.worker.redeem import redeem_all
from gradmarket.worker.report import Journal, totals
from gradmarket.worker.run import run
from gradmarket.worker.settings import Settings
from gradmarket.worker.signals import LeaveNow
from gradmarket.worker.vouchers import Book, value
from gradmarket.worker.wallet import Wallet

app = typer.Typer(no_args_is_help=True, help="Sell gradients: run a worker, look after its wallet.")
wallet_app = typer.Typer(no_args_is_help=True, help="The worker's key, and what it has earned.")
app.add_typer(wallet_app, name="wallet")

MarketOption = Annotated[str | None, typer.Option("--market", help="Address of the requester's service.")]
RpcOption = Annotated[str | None, typer.Option("--rpc", help="Your own JSON-RPC node of the chain.")]
PayoutOption = Annotated[str | None, typer.Option("--payout", help="Where earnings go, if not to the worker itself.")]
DataOption = Annotated[Path | None, typer.Option("--data", help="Folder of the key, the vouchers and the cache.")]
DeviceOption = Annotated[str | None, typer.Option("--device", help="What computes: cpu, or cuda.")]
MemoryOption = Annotated[int | None, typer.Option("--max-memory", help="Bytes that a step may take.")]
DiskOption = Annotated[int | None, typer.Option("--max-disk", help="Bytes that downloads may take.")]
PriceOption = Annotated[str | None, typer.Option("--min-price", help="Least pay, in the token's smallest unit.")]
JobOption = Annotated[list[str] | None, typer.Option("--job", help="Work for this job only; may be repeated.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


@app.command("run")
def run_command(
    market: MarketOption = None,
    rpc: RpcOption = None,
    payout: PayoutOption = None,
    data: DataOption = None,
    device: DeviceOption = None,
    max_memory: MemoryOption = None,
    max_disk: DiskOption = None,
    min_price: PriceOption = None,
    job: JobOption = None,
    as_json: JsonOption = False,
) -> None:
    """Work for a market until the first SIGTERM or SIGINT, which finishes what is in flight; a second leaves now."""
    given = {"market": market, "rpc": rpc, "payout": payout, "data": data, "device": device, "min_price": min_price}
    settings = _settings(**given, max_memory=max_memory, max_disk=max_disk, jobs=job or None)
    with _told():
        done = run(settings, journal=Journal(as_json))
    raise typer.Exit(0 if done.finished else 1)


@wallet_app.command("new")
def wallet_new(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Make a key; encrypted where GRADMARKET_WORKER_PASSPHRASE is set."""
    settings = _settings(data=data)
    with _told():
        _show(wallet.create(settings.data, settings.secret), settings, as_json)


@wallet_app.command("show")
def wallet_show(data: DataOption = None, as_json: JsonOption = False) -> None:
    """The address, where the key is, how to back it up, and what the book says of its earnings."""
    settings = _settings(data=data)
    with _told():
        _show(wallet.load(settings.data, settings.secret), settings, as_json)


@wallet_app.command("redeem")
def wallet_redeem(rpc: RpcOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Redeem every voucher in the book, with no market needed."""
    with _told():
        done = redeem_all(_settings(rpc=rpc, data=data), Journal(as_json))
    raise typer.Exit(0 if done else 1)


def _settings(**given: Any) -> Settings:
    """Options over environment over defaults."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        problem = error.errors()[0]
        raise typer.BadParameter(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong is said in one line."""
    try:
        yield
    except MarketError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    except LeaveNow as left:
        raise typer.Exit(1) from left


def _show(key: Wallet, settings: Settings, as_json: bool) -> None:
    accounts = Book(settings.data / "book.json").accounts
    sums = totals(accounts)
    if as_json:
        facts = {"address": key.address, "path": str(key.path), "encrypted": key.encrypted}
        money = {"earned": str(sums.earned), "redeemed": str(sums.redeemed)}
        typer.echo(json.dumps({**facts, **money, "accepted": sums.accepted, "rejected": sums.rejected}))
        return
    typer.echo(key.backup())
    for account in accounts:
        open_ = value(account.redeemable, account)
        typer.echo(f"{account.job}: {account.accepted} accepted, {account.rejected} rejected, {open_} still to redeem")
