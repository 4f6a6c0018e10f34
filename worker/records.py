"""The worker's own evidence: of every replica that is over, what was offered, committed, opened and judged.

One JSON object a line, a file for each job of each chain. It is enough, with a node of the chain, to prove what the
requester signed; nothing in it is asked of the market again.
"""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from gradmarket.market.messages import Offer
from gradmarket.market.rules.lifecycle import PAID
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Digest, Hash, ReplicaId, ReplicaState
from gradmarket.market.wire import Lease, SignedVerdict, WaveOpened, hash_of
from gradmarket.worker import durable
from gradmarket.worker.in_flight import SealedAnswer
from gradmarket.worker.protocol_checks import breaks_promise


class ReplicaRecord(BaseModel):
    """`at` is when this worker heard of the end (Unix seconds); `market` the address that told it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    at: float
    market: str
    lease: Lease
    prepared: SealedAnswer | None
    wave: WaveOpened | None
    """None where it was not opened, or the worker was killed after it."""
    promised: bool
    """A signed verdict had promised pay: `promise`, where it was kept."""
    uploaded: bool
    promise: SignedVerdict | None = None
    asked: bool = True
    """The market had wanted the payload; what versions before wrote does not tell."""
    sent: bool = False
    """A byte of the payload may have left."""
    verdict: SignedVerdict

    @property
    def offer(self) -> Offer:
        return self.lease.offer.struct()

    @property
    def paid(self) -> bool:
        """The requester said that this gradient is paid."""
        return self.verdict.state in PAID

    @property
    def unkept(self) -> bool:
        """Pay was promised under signature and nothing paid, not by this worker's silence alone."""
        return self.promised and breaks_promise(self.verdict.state, self.asked, self.sent or self.uploaded)

    @property
    def rejected(self) -> bool:
        return self.verdict.state is ReplicaState.REJECTED

    @property
    def root(self) -> Hash | None:
        """Of the payload that this worker made."""
        return hash_of(Digest(self.prepared.root)) if self.prepared else None


def add(folder: Path, domain: Domain, record: ReplicaRecord) -> None:
    """Outlives the process; a power cut may cost the last ones."""
    durable.append(file_of(folder, domain.instance, record.lease.offer.job), record.model_dump_json().encode() + b"\n")


def read(folder: Path, domain: Domain, chain_job: int) -> Iterator[ReplicaRecord]:
    """In the order in which they were heard of, each replica once; a line that a crash cut short is passed over.

    A rejection that an audit proved wrong is followed by what became of it, which is the one that counts.
    """
    found: dict[ReplicaId, ReplicaRecord] = {}
    for record in _lines(file_of(folder, domain.instance, chain_job)):
        before = found.get(record.lease.replica)
        if before is None or before.rejected:
            found[record.lease.replica] = record
    yield from found.values()


def rejection(folder: Path, domain: Domain, replica: ReplicaId) -> ReplicaRecord | None:
    """The record of this replica, where it ended with a rejection, in whichever job of the chain's history."""
    for path in sorted((folder / "records").glob(f"{domain.instance.hex()}-*.jsonl")):
        ends = [record for record in _lines(path, replica) if record.lease.replica == replica]
        if ends:
            return ends[-1] if ends[-1].rejected else None
    return None


def _lines(path: Path, naming: str = "") -> Iterator[ReplicaRecord]:
    """The whole records of a file; of those lines only that hold `naming`."""
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        if naming.encode() not in line:
            continue
        try:
            yield ReplicaRecord.model_validate_json(line)
        except ValidationError:
            continue


def file_of(folder: Path, instance: Hash, chain_job: int) -> Path:
    return folder / "records" / f"{instance.hex()}-{chain_job}.jsonl"
