"""The replicas in flight, each a file written before its commitment is sent: a restarted worker resumes from it.

leased -> prepared (payload, salt and seal on disk) -> committed -> revealed -> agree -> over
"""

import os
from pathlib import Path
from typing import Any, Final

from blake3 import blake3
from pydantic import ConfigDict, ValidationError

from gradmarket.market.fields import DeferredModel, DigestField, HashField, SignatureField
from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.messages import Offer
from gradmarket.market.rules import sketch_packing
from gradmarket.market.rules.lifecycle import is_final_state
from gradmarket.market.rules.secrets import digest_of, seal_commitment, wave_seed
from gradmarket.market.signing import Domain, Signer, digest_struct
from gradmarket.market.terms import Address, Hash, ReplicaId, ReplicaState, Units, blob_digest
from gradmarket.market.wire.poll import (
    Answer,
    CommitmentRequest,
    Lease,
    Reveal,
    SignedVerdict,
    SketchRequest,
    WaveOpened,
    hash_of,
)
from graphdoc.encoding import Bytes
from worker import durable

LONGEST_S: Final = 3600.0
"""The most seconds for which a replica counts as work under way: a market may give any time, even a year."""


class SealedAnswer(DeferredModel):
    """A sealed answer: everything that a reveal and an upload need, except the payload, which has a file of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    salt: HashField
    root: DigestField
    sealed: HashField
    signature: SignatureField
    compute_seconds: float
    """The time reported to the market: 0 where the rows are this machine's own, since time reveals facts about them."""


class InFlight(DeferredModel):
    """A replica in flight. `state` is the market's last; `instance` is that of the contract that pays."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    lease: Lease
    instance: HashField
    state: ReplicaState = ReplicaState.LEASED
    taken_at: float
    prepared: SealedAnswer | None = None
    opened: bool = False
    """Whether the wave's secret has arrived and passed the checks: the answer may be revealed."""
    wave: WaveOpened | None = None
    """The opened wave as the market sent it."""
    sketch: SketchRequest | None = None
    """The sketch under the seed of that wave, if the job compares sketches."""
    promise: SignedVerdict | None = None
    """The signed verdict that promises pay."""
    promised: bool = False
    """Whether there is such a verdict; files of earlier versions hold only this flag, not the verdict."""
    asked: bool = False
    """Whether the market asked for the payload; on disk, so that a restarted worker knows its own silence."""
    sent: bool = False
    """Whether a byte of the payload may have been sent; synced to disk before it is."""
    uploaded: bool = False
    """Whether the market confirmed that it has the payload."""

    @property
    def replica(self) -> ReplicaId:
        return self.lease.replica

    @property
    def offer(self) -> Offer:
        return self.lease.offer.struct()

    @property
    def open(self) -> bool:
        return not is_final_state(self.state)

    @property
    def due_at(self) -> float:
        """Returns when all of its own deadlines, one after the other, are over, in Unix seconds."""
        offer = self.lease.offer
        return self.taken_at + offer.lease_seconds + offer.wave_seconds + offer.upload_seconds

    def under_way(self, now: float) -> bool:
        """Returns whether it is still worked on: within the market's times for it, and LONGEST_S."""
        return self.open and now <= min(self.due_at, self.taken_at + LONGEST_S)

    @property
    def units(self) -> Units:
        """Returns the units that it may still earn."""
        return self.lease.offer.price if self.open else Units(0)

    def commitment(self) -> CommitmentRequest | None:
        """Returns the commitment to send until the market has confirmed it."""
        if self.prepared is None or self.state is not ReplicaState.LEASED:
            return None
        prepared = self.prepared
        return CommitmentRequest(
            replica=self.replica,
            fence=self.lease.fence,
            sealed=prepared.sealed,
            signature=prepared.signature,
            compute_seconds=prepared.compute_seconds,
        )

    def answer(self) -> Answer | None:
        """Returns commitment and reveal together, for a task that this replica decides alone."""
        commitment = self.commitment()
        if commitment is None or self.prepared is None:
            return None
        return Answer(commitment=commitment, salt=self.prepared.salt, root=self.prepared.root)

    def in_time(self, now: float) -> bool:
        """Returns whether the lease leaves time for an upload, so that the payload may come with the commitment."""
        seconds = self.lease.seconds
        return now <= self.taken_at + seconds - min(self.lease.offer.upload_seconds, seconds / 2)

    def reveal(self) -> Reveal | None:
        if self.prepared is None or not self.opened or self.state is not ReplicaState.COMMITTED:
            return None
        salt, root = self.prepared.salt, self.prepared.root
        return Reveal(replica=self.replica, fence=self.lease.fence, salt=salt, root=root, sketch=self.sketch)


def seal_payload(
    domain: Domain, held: InFlight, payload: Bytes, worker: Address, signer: Signer, seconds: float
) -> InFlight:
    """Seals a payload under a fresh salt and signs the commitment to it."""
    root = blob_digest(payload)
    salt = Hash(os.urandom(32))
    offer = digest_struct(domain, held.offer)
    sealed = seal_commitment(offer, worker, salt, hash_of(root))
    request = CommitmentRequest(replica=held.replica, fence=held.lease.fence, sealed=sealed, signature=bytes(65))
    signature = signer(digest_struct(domain, request.struct(offer, worker)))
    prepared = SealedAnswer(salt=salt, root=root, sealed=sealed, signature=signature, compute_seconds=seconds)
    return held.model_copy(update={"prepared": prepared})


def sign_sketch(
    domain: Domain,
    held: InFlight,
    opened: WaveOpened,
    made: Sketch,
    determinism_class: str,
    worker: Address,
    signer: Signer,
) -> SketchRequest:
    """Signs the sketch of an answer under the wave's seed."""
    request = SketchRequest(
        numbers=sketch_packing.encode_sketch(made), determinism_class=determinism_class, signature=bytes(65)
    )
    struct = request.struct(digest_struct(domain, held.offer), worker, seed_of(opened))
    return request.model_copy(update={"signature": signer(digest_struct(domain, struct))})


def seed_of(opened: WaveOpened) -> Hash:
    return wave_seed(opened.secret, digest_of(opened.commitments))


class InFlightFolder:
    """The folder of the replicas in flight: one record each, and its payload until it is over.

    The files survive a crash of the process. A power cut may lose them, except for replicas whose upload has begun.
    Files are named by a hash: the market chooses a replica's name, which might be a path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.held = dict[ReplicaId, InFlight]()
        for path in sorted(folder.glob("*.json")):
            try:
                held = InFlight.model_validate_json(path.read_bytes())
                self.held[held.replica] = held
            except ValidationError:  # a power cut left it incomplete
                path.unlink()

    def put(self, held: InFlight, **changes: Any) -> InFlight:
        """Updates the replica in memory only: the market sends again any change lost with the process."""
        changed = held.model_copy(update=changes)
        self.held[held.replica] = changed
        return changed

    def save(self, held: InFlight, synced: bool = False, **changes: Any) -> InFlight:
        """Updates the replica on disk; if `synced`, it survives a power cut too."""
        changed = self.put(held, **changes)
        durable.write_file_atomically(
            self._build_file_path(held.replica, "json"), changed.model_dump_json().encode(), synced
        )
        return changed

    def sent(self, replica: ReplicaId) -> None:
        """Records the sending. Must be called before the first byte of the replica's payload is sent."""
        held = self.held[replica]
        if not held.sent:
            self.save(held, synced=True, sent=True)

    def handed_over(self) -> int:
        """Returns the number of payloads that may have been sent and have no final verdict: they count as unpaid."""
        return sum(held.sent for held in self.open())

    def save_payload(self, replica: ReplicaId, payload: Bytes) -> None:
        durable.write_file_atomically(self.payload(replica), payload, synced=False)

    def payload(self, replica: ReplicaId) -> Path:
        return self._build_file_path(replica, "payload")

    def parts(self, replica: ReplicaId) -> Path:
        """Returns the file of the parts of the task in question at hearings of its answer."""
        return self._build_file_path(replica, "parts")

    def forget(self, replica: ReplicaId) -> None:
        """Forgets a replica once the market knows that this worker has its final verdict."""
        del self.held[replica]
        self._delete_files(replica)

    def clear(self) -> None:
        """Deletes the files of finished replicas already recorded in the accounts: a restart would see them as open."""
        for held in self.held.values():
            if not held.open:
                self._delete_files(held.replica)

    def _delete_files(self, replica: ReplicaId) -> None:
        self._build_file_path(replica, "json").unlink(missing_ok=True)
        self.payload(replica).unlink(missing_ok=True)
        self.parts(replica).unlink(missing_ok=True)

    def _build_file_path(self, replica: ReplicaId, kind: str) -> Path:
        return self.folder / f"{blake3(replica.encode()).hexdigest()[:32]}.{kind}"

    def open(self) -> list[InFlight]:
        return [held for held in self.held.values() if held.open]


def handed_over(data: Path) -> list[InFlight]:
    """Returns, over all markets, the replicas whose payload may have been sent and that have no final verdict."""
    folders = sorted((data / "held").glob("*/"))
    return [held for folder in folders for held in InFlightFolder(folder).open() if held.sent]
