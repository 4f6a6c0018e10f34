"""`gradmarket chain …`: shows the chain that holds the money; starts and stops a local one for trials."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from eth_utils.address import is_address, to_checksum_address

from contracts import deployment, keystore
from contracts.local import LocalChain, development_key
from contracts.rpc import LOCAL_CHAIN_IDS, connect_to_node
from contracts.transactions import chain_id
from gradmarket.commands.edge import DataOption, JsonOption, MarketOption, print_json
from gradmarket.endpoint import data_folder, find_endpoint
from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.terms import Address
from gradmarket.terminal import echo_text
from requester.folder_lock import find_serving_process

KEY = "GRADMARKET_SENDER_KEY"
RpcOption = Annotated[str, typer.Option("--rpc", help="The chain's JSON-RPC.")]

app = typer.Typer(no_args_is_help=True)


@app.command()
def show(market: MarketOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Where the service's money is: chain, contract, token, and the signer of its vouchers."""
    with find_endpoint(market, None, data).market() as client:
        _print_facts(client.chain().model_dump(mode="json"), as_json)


@app.command()
def up(
    data: DataOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Start the data folder's local Anvil, or find the one that runs. It stays until `gradmarket chain down`."""
    chain = LocalChain.open(_build_chain_folder(data), port)
    _print_facts({"url": chain.url, "pid": chain.pid, "folder": str(chain.directory)}, as_json)


@app.command()
def down(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Stop the data folder's local Anvil; its state is kept. A service that still needs it is stopped first."""
    server = find_serving_process(data_folder(data))
    if server is not None:
        raise Conflict(
            f"process {server} serves {data_folder(data)} and starts its chain again",
            f"run `kill {server}`, then this command again",
        )
    chain = LocalChain.find_running_chain(_build_chain_folder(data))
    if chain is None:
        raise NotFound(f"no Anvil runs on {_build_chain_folder(data)}")
    chain.stop()
    _print_facts({"stopped": chain.pid}, as_json)


@app.command()
def deploy(
    rpc: RpcOption,
    token: Annotated[
        str | None, typer.Option("--token", metavar="ADDRESS", help="A token that is there, in a test token's place.")
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deploy the contract with a test token, and write the addresses where `gradmarket serve` looks.

    The key is GRADMARKET_SENDER_KEY's; on a local chain one that everybody knows, where none is given.
    """
    book = data_folder(data) / "deployment.json"
    if book.exists():
        raise Refused(f"{book} names a deployment already")
    web3 = connect_to_node(rpc)
    chain = chain_id(web3)
    key = os.environ.get(KEY)
    if key:
        deploy_key = keystore.parse_key(key, KEY)
    else:
        if chain not in LOCAL_CHAIN_IDS:
            raise Refused(f"chain {chain} is not a local one: give the key that pays in {KEY}")
        deploy_key = development_key()
    if token is not None and not is_address(token):
        raise Refused(f"--token {token[:80]} is no address", "write it like 0x and 40 hexadecimal digits")
    deployed = deployment.deploy_market(
        web3, deploy_key, token=None if token is None else Address(to_checksum_address(token))
    )
    deployment.write_deployment(deployed, book)
    fields = {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(deployed).items()}
    _print_facts({**fields, "book": str(book)}, as_json)


def _build_chain_folder(data: Path | None) -> Path:
    return data_folder(data) / "chain"


def _print_facts(facts: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        echo_text(f"{name:>10}  {value}")
