"""A worker's export for its watchtower: a folder without its key, which any tool may copy to another machine.

    watch.json       its worker, its watcher, the chains with the watcher's mandates, the accounts with the vouchers
    records/*.jsonl  the worker's evidence, as in its own folder

Its readers can redeem to the worker's payout address and nothing else; only the named watcher can contest.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from pydantic import ConfigDict, ValidationError

from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.fields import AddressField, DeferredModel, SignatureField, first_fault
from gradmarket.market.messages import Payout, WatchMandate
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import digest_struct, sign_digest
from gradmarket.market.terms import Address
from gradmarket.market.wire.sign_in import ChainFacts
from worker import durable
from worker.money import known_chains
from worker.money.account_store import BOOK, AccountStore, JobAccount
from worker.money.chain_view import ledger_of
from worker.settings import WorkerSettings
from worker.wallet import Wallet

INDEX: Final = "watch.json"
RECORDS: Final = "records"


class SignedPayout(DeferredModel):
    """The recipient of the worker's earnings; the contract accepts it once, at this nonce."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    payout: AddressField
    nonce: int
    signature: SignatureField


class WatchedChain(DeferredModel):
    """A contract that pays the worker, and the watcher's mandate for it. `payout`: where the contract has another."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    facts: ChainFacts
    mandate: SignatureField
    payout: SignedPayout | None = None


class WatchExport(DeferredModel):
    """The file `watch.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["gradmarket-watch/1"] = "gradmarket-watch/1"
    worker: AddressField
    watcher: AddressField
    chains: tuple[WatchedChain, ...]
    accounts: tuple[JobAccount, ...]


def build_export(settings: WorkerSettings, wallet: Wallet, watcher: Address) -> WatchExport:
    """Returns the export with signed mandates. Raises Untrusted or ChainError if a node is not its chain's, or
    silent."""
    accounts = AccountStore(settings.data / BOOK).accounts
    chains = list[WatchedChain]()
    for facts in known_chains.list_known_chains(settings.data):
        mandate = sign_digest(wallet.key, digest_struct(facts.domain, WatchMandate(wallet.address, watcher)))
        ledger, payout = None if settings.payout is None else ledger_of(settings.node, facts), None
        if ledger is not None and settings.payout is not None and ledger.payout_of(wallet.address) != settings.payout:
            message = Payout(wallet.address, settings.payout, ledger.payout_nonce(wallet.address))
            signature = sign_digest(wallet.key, digest_struct(ledger.domain(), message))
            payout = SignedPayout(payout=settings.payout, nonce=message.nonce, signature=signature)
        chains.append(WatchedChain(facts=facts, mandate=mandate, payout=payout))
    return WatchExport(worker=wallet.address, watcher=watcher, chains=tuple(chains), accounts=accounts)


def write_export(data: Path, export: WatchExport, to: Path) -> None:
    """Writes the export of the worker's folder `data` into the folder `to`. Raises OSError."""
    copy_records(data, to)
    durable.write_file_atomically(to / INDEX, export.model_dump_json(indent=1).encode())


def copy_records(source: Path, to: Path) -> None:
    """Copies files that grew: these are only ever appended to, and a shorter one is older."""
    for path in _list_record_files(source):
        copy, size = to / RECORDS / path.name, path.stat().st_size
        if not copy.is_file() or copy.stat().st_size < size:
            durable.write_file_atomically(copy, path.read_bytes())


def measure_folder(data: Path) -> tuple[bytes, int]:
    """Returns values that change whenever an export of the folder would."""
    book = data / BOOK
    sizes = sum(path.stat().st_size for path in _list_record_files(data))
    return book.read_bytes() if book.is_file() else b"", sizes


def _list_record_files(folder: Path) -> Iterator[Path]:
    yield from sorted((folder / RECORDS).glob("*.jsonl"))


def read_export(place: Path, watcher: Address) -> WatchExport:
    """Reads the export in the folder, whose mandates name this watcher.

    Raises NotFound without one, Refused if it is damaged, of another release, or for another watcher.
    """
    index = place / INDEX
    try:
        export = WatchExport.model_validate_json(index.read_bytes())
    except OSError as error:
        remedy = "name the folder that `gradmarket wallet export-watch` wrote"
        raise NotFound(f"{index} cannot be read: {error.strerror}", remedy) from error
    except ValidationError as error:
        where, why = first_fault(error, "export")
        raise Refused(f"{index} is no export: {where}: {why}", "export it again, and copy all of it") from error
    if export.watcher != watcher:
        remedy = f"export it for this key (gradmarket wallet export-watch --watcher {watcher}), or name its own folder"
        raise Refused(f"{index} is for the watcher {export.watcher}, and the key here is that of {watcher}", remedy)
    mandate = WatchMandate(export.worker, export.watcher)
    for chain in export.chains:
        if not is_signed_by(chain.facts.domain, mandate, chain.mandate, export.worker):
            raise Refused(f"{index}: a mandate is not signed by {export.worker}", "export it again")
    return export
