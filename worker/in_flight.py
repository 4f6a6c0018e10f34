"""The replicas in flight, each a file that is on disk before the commitment is sent: a killed worker goes on from it.

leased -> prepared (payload, salt and seal on disk) -> committed -> revealed -> agree -> over
"""

import os
from pathlib import Path
from typing import Any

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, ValidationError

from gradmarket.market.fields import HashField, SignatureField
from gradmarket.market.gradient.merkle import root as payload_root
from gradmarket.market.job import DigestField
from gradmarket.market.messages import Offer
from gradmarket.market.rules import sketch_packing
from gradmarket.market.rules.lifecycle import over
from gradmarket.market.rules.projection import Sketch
from gradmarket.market.rules.secrets import digest_of, seal, wave_seed
from gradmarket.market.signing import Domain, Signer, digest
from gradmarket.market.terms import Address, Hash, ReplicaId, ReplicaState, Units
from gradmarket.market.wire import CommitmentRequest, Lease, Reveal, SignedVerdict, SketchRequest, WaveOpened, hash_of
from gradmarket.worker import durable


class SealedAnswer(BaseModel):
    """What was computed, sealed: everything that a reveal and an upload need, but for the payload's own file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    salt: HashField
    root: DigestField
    sealed: HashField
    signature: SignatureField
    compute_seconds: float


class InFlight(BaseModel):
    """A replica as this worker knows it. `state` is what the market said last; `instance` is the paying chain's."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    lease: Lease
    instance: HashField
    state: ReplicaState = ReplicaState.LEASED
    taken_at: float
    prepared: SealedAnswer | None = None
    opened: bool = False
    """The wave's secret was told and is right: reveal."""
    wave: WaveOpened | None = None
    """As it was told."""
    sketch: SketchRequest | None = None
    """Under the seed of that wave, where the job compares sketches."""
    promise: SignedVerdict | None = None
    """The signed verdict that promises pay."""
    promised: bool = False
    """There is one; the only word of it in what versions before wrote."""
    asked: bool = False
    """The market wanted the payload."""
    sent: bool = False
    """A byte of the payload may have left; on disk, synced, before it does."""
    uploaded: bool = False
    """The market answered that it has the payload."""

    @property
    def replica(self) -> ReplicaId:
        return self.lease.replica

    @property
    def offer(self) -> Offer:
        return self.lease.offer.struct()

    @property
    def open(self) -> bool:
        return not over(self.state)

    @property
    def due_at(self) -> float:
        """When, in Unix seconds, each of its own deadlines would be over in turn."""
        offer = self.lease.offer
        return self.taken_at + offer.lease_seconds + offer.wave_seconds + offer.upload_seconds

    @property
    def units(self) -> Units:
        """What it may still earn."""
        return self.lease.offer.price if self.open else Units(0)

    def commitment(self) -> CommitmentRequest | None:
        """What to say while the market has not said that it is committed."""
        if self.prepared is None or self.state is not ReplicaState.LEASED:
            return None
        made = self.prepared
        return CommitmentRequest(
            replica=self.replica,
            fence=self.lease.fence,
            sealed=made.sealed,
            signature=made.signature,
            compute_seconds=made.compute_seconds,
        )

    def reveal(self) -> Reveal | None:
        if self.prepared is None or not self.opened or self.state is not ReplicaState.COMMITTED:
            return None
        salt, root = self.prepared.salt, self.prepared.root
        return Reveal(replica=self.replica, fence=self.lease.fence, salt=salt, root=root, sketch=self.sketch)


def prepare(
    domain: Domain, held: InFlight, payload: bytes, worker: Address, signer: Signer, seconds: float
) -> InFlight:
    """Seals a payload under a fresh salt and signs the commitment to it."""
    root = payload_root(payload)
    salt = Hash(os.urandom(32))
    offer = digest(domain, held.offer)
    sealed = seal(offer, worker, salt, hash_of(root))
    made = CommitmentRequest(replica=held.replica, fence=held.lease.fence, sealed=sealed, signature=bytes(65))
    signature = signer(digest(domain, made.struct(offer, worker)))
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
    """Signs what an answer comes to under the wave's seed."""
    said = SketchRequest(numbers=sketch_packing.tell(made), determinism_class=determinism_class, signature=bytes(65))
    struct = said.struct(digest(domain, held.offer), worker, seed_of(opened))
    return said.model_copy(update={"signature": signer(digest(domain, struct))})


def seed_of(opened: WaveOpened) -> Hash:
    return wave_seed(opened.secret, digest_of(opened.commitments))


class InFlightFolder:
    """The folder of the replicas in flight: a record each, and its payload until it is over.

    They outlive the process; a power cut may cost what is in flight, but for payloads that were begun to be sent. Files
    are named by a hash: a replica's name comes from the market and might be a path.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = map(_read, sorted(folder.glob("*.json")))
        self.held = {held.replica: held for held in found if held is not None}

    def drop_foreign(self, instance: Hash) -> None:
        """Forgets what was leased on another chain, or on one that was started anew: nobody pays for it here."""
        for replica in [held.replica for held in self.held.values() if held.instance != instance]:
            self.forget(replica)

    def put(self, held: InFlight, **changes: Any) -> InFlight:
        """Remembers it, not on disk: what is lost with the process the market tells again."""
        changed = held.model_copy(update=changes)
        self.held[held.replica] = changed
        return changed

    def save(self, held: InFlight, synced: bool = False, **changes: Any) -> InFlight:
        """Remembers it on disk; `synced`: through a power cut, too."""
        changed = self.put(held, **changes)
        durable.write(self._file(held.replica, "json"), changed.model_dump_json().encode(), synced)
        return changed

    def sent(self, replica: ReplicaId) -> None:
        """To be called before the first byte of its payload leaves."""
        held = self.held[replica]
        if not held.sent:
            self.save(held, synced=True, sent=True)

    def handed_over(self) -> int:
        """Payloads that may have left and that no verdict has ended: as good as unpaid."""
        return sum(held.sent for held in self.open())

    def save_payload(self, replica: ReplicaId, payload: bytes) -> None:
        durable.write(self.payload(replica), payload, synced=False)

    def payload(self, replica: ReplicaId) -> Path:
        return self._file(replica, "payload")

    def forget(self, replica: ReplicaId) -> None:
        """The market knows that this worker has heard how it ended."""
        del self.held[replica]
        self._remove(replica)

    def clear(self) -> None:
        """Deletes the files of finished replicas that the accounts have: a killed worker would take them for open."""
        for held in self.held.values():
            if not held.open:
                self._remove(held.replica)

    def _remove(self, replica: ReplicaId) -> None:
        self._file(replica, "json").unlink(missing_ok=True)
        self.payload(replica).unlink(missing_ok=True)

    def _file(self, replica: ReplicaId, kind: str) -> Path:
        return self._folder / f"{blake3(replica.encode()).hexdigest()[:32]}.{kind}"

    def open(self) -> list[InFlight]:
        return [held for held in self.held.values() if held.open]


def handed_over(data: Path) -> list[InFlight]:
    """Of every market: replicas whose payload may have left, and that no verdict has ended."""
    folders = sorted((data / "held").glob("*/"))
    return [held for folder in folders for held in InFlightFolder(folder).open() if held.sent]


def _read(path: Path) -> InFlight | None:
    """None, and the file is gone, where a power cut left half of it."""
    try:
        return InFlight.model_validate_json(path.read_bytes())
    except ValidationError:
        path.unlink()
        return None
