"""The chains that this worker was paid on, kept on disk, so that its money can be redeemed without the market."""

from pathlib import Path

from gradmarket.market.errors import NotFound
from gradmarket.market.terms import Hash
from gradmarket.market.wire_sign_in import ChainFacts
from gradmarket.worker import durable


def keep(folder: Path, facts: ChainFacts) -> None:
    durable.write(_path(folder, facts.instance), facts.model_dump_json(indent=1).encode())


def find(folder: Path, instance: Hash) -> ChainFacts:
    """Raises NotFound if the worker was never paid on this chain."""
    path = _path(folder, instance)
    if not path.is_file():
        raise NotFound(f"no chain {instance.hex()} in {folder}")
    return ChainFacts.model_validate_json(path.read_bytes())


def kept(folder: Path) -> list[ChainFacts]:
    """Returns all of them, ordered by instance."""
    files = sorted((folder / "chains").glob("*.json"))
    return [ChainFacts.model_validate_json(path.read_bytes()) for path in files]


def _path(folder: Path, instance: Hash) -> Path:
    return folder / "chains" / f"{instance.hex()}.json"
