"""A scripted worker: it signs and stores like a real one, and the test chooses its every move.

How it reaches its market is its kind's: requester/market_workers within this process, attacks/scripted_worker by HTTP.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from eth_keys.datatypes import PrivateKey

from gradmarket.market import signing
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.rules import lifecycle, secrets, sketch_packing
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Digest, Hash, ReplicaId, ReplicaState, blob_digest
from gradmarket.market.wire.poll import (
    NO_ROOT,
    CommitmentRequest,
    Lease,
    LeaseReturn,
    OfferFields,
    RefusedItem,
    Reveal,
    SignedVerdict,
    SketchRequest,
    WaveOpened,
    hash_of,
)
from tests.kit.behaviour import HONEST, Behaviour


@dataclass(frozen=True)
class Held:
    """A replica as its worker knows it."""

    lease: Lease
    state: ReplicaState = ReplicaState.LEASED
    payload: bytes = b""
    salt: Hash = NO_ROOT
    wave: WaveOpened | None = None
    wanted: bool = False
    brought: bool = False
    """Its payload, since that was asked for."""
    told: SignedVerdict | None = None

    @property
    def root(self) -> Digest:
        return blob_digest(self.payload)


class Scripted(ABC):
    def __init__(self, key: PrivateKey, behaviour: Behaviour = HONEST, determinism_class: str = "cpu") -> None:
        self.key, self.behaviour, self.determinism_class = key, behaviour, determinism_class
        self.address = signing.address_of(key)
        self.held: dict[ReplicaId, Held] = {}
        self.refusals: list[RefusedItem] = []
        self.capacity = 1

    @property
    @abstractmethod
    def domain(self) -> Domain: ...

    @abstractmethod
    def sketched_layout(self, held: Held) -> Layout | None:
        """Of the payload; None where the job compares no sketches."""

    @abstractmethod
    def compute(self, offer: OfferFields) -> bytes:
        """The payload that it commits to."""

    @abstractmethod
    def new_salt(self, held: Held) -> Hash: ...

    def computed(self, held: Held) -> Held:
        return (
            held if held.payload else self._put(held, payload=self.compute(held.lease.offer), salt=self.new_salt(held))
        )

    def commitments(self) -> list[CommitmentRequest]:
        """Returns a turn's messages about all leases that are not committed."""
        fresh = [held for held in self.open() if held.wave is None and held.state == ReplicaState.LEASED]
        return [self.commitment(self.computed(held)) for held in fresh] if self.behaviour.commits else []

    def commitment(self, held: Held, **changes: Any) -> CommitmentRequest:
        """Sealed and signed; `changes` replace fields of a cheater's message."""
        offer, lease = self.offer(held), held.lease
        sealed = secrets.seal_commitment(offer, self.address, held.salt, hash_of(held.root))
        fields = {"replica": lease.replica, "fence": lease.fence, "sealed": sealed} | changes
        unsigned = CommitmentRequest(signature=bytes(65), **{k: v for k, v in fields.items() if k != "signature"})
        own = signing.sign_digest(self.key, signing.digest_struct(self.domain, unsigned.struct(offer, self.address)))
        return unsigned.model_copy(update={"signature": fields.get("signature", own)})

    def reveals(self) -> list[Reveal]:
        opened = [held for held in self.open() if held.wave is not None and held.state == ReplicaState.LEASED]
        return [self.revelation(held) for held in opened] if self.behaviour.reveals else []

    def revelation(self, held: Held, **changes: Any) -> Reveal:
        fields = {"replica": held.lease.replica, "fence": held.lease.fence, "salt": held.salt, "root": held.root}
        return Reveal(**(fields | {"sketch": self.sketch(held)} | changes))

    def sketch(self, held: Held, **changes: Any) -> SketchRequest | None:
        """Used where the job compares sketches; `changes` replace fields of a cheater's message."""
        layout = self.sketched_layout(held)
        if layout is None or held.wave is None:
            return None
        lied, own = self.behaviour.sketches(held.payload), {"determinism_class": self.determinism_class} | changes
        return sketched(self.domain, self.key, layout, lied, held.lease.offer, held.wave, **own)

    def give_up(self, held: Held, failed: bool = False) -> LeaseReturn:
        return LeaseReturn(replica=held.lease.replica, fence=held.lease.fence, failed=failed, reason="declined")

    def offer(self, held: Held) -> Hash:
        return signing.digest_struct(self.domain, held.lease.offer.struct())

    def open(self) -> list[Held]:
        return [held for held in list(self.held.values()) if not lifecycle.is_final_state(held.state)]

    def newest(self) -> Held:
        return list(self.held.values())[-1]

    def _put(self, held: Held, **changes: Any) -> Held:
        self.held[held.lease.replica] = replace(self.held[held.lease.replica], **changes)
        return self.held[held.lease.replica]


def seed_of(wave: WaveOpened) -> Hash:
    return secrets.wave_seed(wave.secret, secrets.digest_of(wave.commitments))


def sketched(
    domain: Domain,
    key: PrivateKey,
    layout: Layout,
    payload: bytes,
    offer: OfferFields,
    wave: WaveOpened,
    **changes: Any,
) -> SketchRequest:
    """Sketch of the payload under the wave's seed; `changes` replace fields of another worker, under its signature."""
    made = sketch_packing.of_payload(layout, payload, load_codec("fp32"), offer.seed, seed_of(wave))
    sketch = SketchRequest(**({"numbers": sketch_packing.encode_sketch(made), "signature": bytes(65)} | changes))
    if "signature" in changes:
        return sketch
    named = sketch.struct(signing.digest_struct(domain, offer.struct()), signing.address_of(key), seed_of(wave))
    return sketch.model_copy(update={"signature": signing.sign_digest(key, signing.digest_struct(domain, named))})
