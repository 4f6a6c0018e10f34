"""The worker's own evidence: the offer, commitment, opening and verdict of each finished replica.

One file for each job of each chain, one JSON object per line. With a node of the chain, it suffices to prove the
requester's signatures; nothing in it must be fetched from the market again.
"""

from collections.abc import Iterator
from pathlib import Path

from pydantic import ConfigDict, ValidationError

from gradmarket.market.fields import DeferredModel
from gradmarket.market.messages import Offer
from gradmarket.market.rules.lifecycle import PAID
from gradmarket.market.rules.proof import breaks_promise
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Digest, Hash, ReplicaId, ReplicaState
from gradmarket.market.wire.poll import Lease, SignedVerdict, WaveOpened, hash_of
from worker import durable
from worker.protocol.in_flight import SealedAnswer


class ReplicaRecord(DeferredModel):
    """`at`: when this worker received the final verdict, in Unix seconds; `market`: the address that sent it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    at: float
    market: str
    lease: Lease
    prepared: SealedAnswer | None
    wave: WaveOpened | None
    """None if the wave was not opened, or if the worker was killed after it."""
    promised: bool
    """Whether a signed verdict had promised pay; it is in `promise` if it was kept."""
    uploaded: bool
    promise: SignedVerdict | None = None
    asked: bool = True
    """Whether the market asked for the payload; the default is for records of earlier versions, which lack it."""
    sent: bool = False
    """Whether a byte of the payload may have been sent."""
    verdict: SignedVerdict

    @property
    def offer(self) -> Offer:
        return self.lease.offer.struct()

    @property
    def paid(self) -> bool:
        """Whether the requester's verdict counts this gradient as paid."""
        return self.verdict.state in PAID

    @property
    def unkept(self) -> bool:
        """Whether pay was promised, or a payload sent, and nothing was paid, except by this worker's own silence."""
        sent = self.sent or self.uploaded
        return (self.promised or sent) and breaks_promise(self.verdict.state, self.asked, sent)

    @property
    def rejected(self) -> bool:
        return self.verdict.state is ReplicaState.REJECTED

    @property
    def root(self) -> Hash | None:
        """Returns the root of the payload that this worker computed."""
        return hash_of(Digest(self.prepared.root)) if self.prepared else None


def append_record(folder: Path, domain: Domain, record: ReplicaRecord) -> None:
    """Appends a record. It survives a crash of the process; a power cut may lose the last ones."""
    durable.append_line(
        file_of(folder, domain.instance, record.lease.offer.job), record.model_dump_json().encode() + b"\n"
    )


def load_records(folder: Path, domain: Domain, chain_job: int) -> Iterator[ReplicaRecord]:
    """Yields the records in the order of their verdicts, one per replica; skips lines that a crash cut short.

    If an audit proves a rejection wrong, a later record of the same replica replaces it.
    """
    newest: dict[ReplicaId, ReplicaRecord] = {}
    for record in _load_complete_records(file_of(folder, domain.instance, chain_job)):
        before = newest.get(record.lease.replica)
        if before is None or before.rejected:
            newest[record.lease.replica] = record
    yield from newest.values()


def find_rejection(folder: Path, domain: Domain, replica: ReplicaId) -> ReplicaRecord | None:
    """Returns the newest record of this replica, if it is a rejection."""
    record = find_newest_record(folder, domain, replica)
    return record if record is not None and record.rejected else None


def find_newest_record(folder: Path, domain: Domain, replica: ReplicaId) -> ReplicaRecord | None:
    """Returns the newest record of this replica, in any job of the contract."""
    for path in sorted((folder / "records").glob(f"{domain.instance.hex()}-*.jsonl")):
        ends = [record for record in _load_complete_records(path, replica) if record.lease.replica == replica]
        if ends:
            return ends[-1]
    return None


def _load_complete_records(path: Path, naming: str = "") -> Iterator[ReplicaRecord]:
    """Yields the complete records of a file, only from lines that contain `naming`."""
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        if naming.encode() not in line:
            continue
        try:
            yield ReplicaRecord.model_validate_json(line)
        except ValidationError:
            continue


def file_of(folder: Path, instance: Hash, chain_job: int) -> Path:
    return folder / "records" / f"{instance.hex()}-{chain_job}.jsonl"
