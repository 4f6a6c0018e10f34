"""The chains on which this worker was paid, kept on disk, so that its money can be redeemed without the market.

Beside them, the markets that it joined: before the first pay, a reader of its folder finds them only here.
"""

import json
from pathlib import Path
from typing import Final

from gradmarket.market.errors import NotFound
from gradmarket.market.terms import Hash
from gradmarket.market.wire.sign_in import ChainFacts
from worker import durable

MARKETS: Final = "markets.json"


def store_chain_facts(folder: Path, facts: ChainFacts) -> None:
    durable.write_file_atomically(_build_facts_path(folder, facts.instance), facts.model_dump_json(indent=1).encode())


def load_chain_facts(folder: Path, instance: Hash) -> ChainFacts:
    """Returns the facts of a chain. Raises NotFound if the worker was never paid on it."""
    path = _build_facts_path(folder, instance)
    if not path.is_file():
        raise NotFound(f"no chain {instance.hex()} in {folder}")
    return ChainFacts.model_validate_json(path.read_bytes())


def list_known_chains(folder: Path) -> list[ChainFacts]:
    """Returns all of them, ordered by instance."""
    files = sorted((folder / "chains").glob("*.json"))
    return [ChainFacts.model_validate_json(path.read_bytes()) for path in files]


def record_joined_market(folder: Path, market: str, chain_id: int) -> None:
    """Records that the worker of the folder joined this market, an address, which pays on this chain."""
    before = load_joined_markets(folder)
    if before.get(market) != chain_id:
        durable.write_file_atomically(
            folder / MARKETS, json.dumps({**before, market: chain_id}, indent=1).encode(), synced=False
        )


def load_joined_markets(folder: Path) -> dict[str, int]:
    """Returns the joined markets' addresses, with the chain of each's pay; none if a power cut spoilt the list."""
    try:
        joined: dict[str, int] = json.loads((folder / MARKETS).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return joined


def _build_facts_path(folder: Path, instance: Hash) -> Path:
    return folder / "chains" / f"{instance.hex()}.json"
