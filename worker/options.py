"""Shared by the worker's commands: options, the settings made from them, an encrypted wallet's opening and facts."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from contracts import keystore
from gradmarket.terminal import echo_text
from gradmarket.user_files import settings_from
from worker import wallet
from worker.settings import WorkerSettings
from worker.wallet import Wallet

RpcOption = Annotated[str | None, typer.Option("--rpc", help="Your own JSON-RPC node of the chain.")]
DataOption = Annotated[Path | None, typer.Option("--data", help="Folder of the key, the vouchers and the cache.")]
MarketOption = Annotated[str | None, typer.Option(help="Address of the service; else GRADMARKET_WORKER_MARKET.")]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="Device: auto, cpu, cuda, cuda:1, cuda:0,cuda:1, or all cards.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
PassphraseOption = Annotated[
    Path | None, typer.Option("--passphrase-file", help="File whose first line opens the key.")
]
PlainOption = Annotated[bool, typer.Option("--plain-key", help="Keep the key unencrypted.")]


def settings_of(**given: Any) -> WorkerSettings:
    """Builds the settings; options take precedence over the environment, which takes precedence over defaults."""
    names = {"markets": "--market", "tokens": "--token", "consents": "--consent", "jobs": "--job"}
    return settings_from(WorkerSettings, given, {**names, "tell_rows": "--hide-rows"})


def add_wallet_passphrase(settings: WorkerSettings) -> WorkerSettings:
    """Asks for the passphrase at the terminal if the wallet needs one and none is set."""
    path = wallet.find_key_file(settings.data)
    if path is None or path.name != wallet.ENCRYPTED or settings.secret is not None:
        return settings
    typed = keystore.ask_passphrase(str(path))
    return settings if typed is None else settings.model_copy(update={"passphrase": SecretStr(typed)})


def build_wallet_facts(key: Wallet) -> dict[str, object]:
    return {"address": key.address, "path": str(key.path), "encrypted": key.encrypted}


def print_wallet(key: Wallet, as_json: bool) -> None:
    echo_text(json.dumps(build_wallet_facts(key)) if as_json else key.describe_key_file())
