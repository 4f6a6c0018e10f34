"""Evidence of verdicts as an honest market publishes it, made by hand: keys, offer, waves, ballots, verdicts."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from eth_keys.datatypes import PrivateKey

from gradmarket.market.features.verify import VerdictCase
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.messages import Commitment, Offer, Outcome, SignedWave
from gradmarket.market.rules import secrets
from gradmarket.market.rules.secrets import digest_of, seal_commitment, wave_seed
from gradmarket.market.signing import Domain, Struct, address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Digest, Hash, ReplicaId, ReplicaState, TaskState, Units
from gradmarket.market.wire.evidence import PublishedBallot, PublishedEvidence, PublishedWave, Thresholds
from gradmarket.market.wire.poll import OfferFields, SketchRequest, hash_of

DOMAIN: Final = Domain(1, Address("0x000000000000000000000000000000000000dEaD"), Hash(bytes(32)))
ZERO: Final = Hash(bytes(32))
TRUE, FALSE, THIRD = (Digest("blake3:" + byte * 32) for byte in ("22", "33", "44"))
JOB: Final = JobSpec.model_validate(
    {
        "name": "digits",
        "model": {"architecture": "mlp"},
        "data": {"ready": "digits"},
        "step": {"rows": 8},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "rounds": 1,
        "price": "7",
        "replication": {"name": "fixed"},
    }
)
TOLERANT: Final = JobSpec.model_validate(
    JOB.model_dump(mode="json")
    | {
        "verifier": {"name": "tolerance"},
        "audit": {"probability": 0.5},
        "replication": {"name": "fixed", "replicas": 3, "max_replicas": 3},
    }
)
ALLOWED: Final = (Thresholds(classes=("cpu", "gpu"), tau={"w": 1e-4}),)
SKETCHES: Final = (("cpu", 1.0), ("gpu", 1.00001), ("cpu", 1.01))
"""Class and scale of each ballot's sketch: the first two agree within ALLOWED, the third does not."""


def key(number: int) -> PrivateKey:
    return PrivateKey((1000 + number).to_bytes(32, "big"))


SIGNER: Final = key(0)


def signature(by: PrivateKey, struct: Struct) -> bytes:
    return sign_digest(by, digest_struct(DOMAIN, struct))


def publication(spec: JobSpec) -> Publication:
    blob = Digest("blake3:" + "00" * 32)
    return Publication(job="0" * 16, spec=spec, document=blob, evaluation=None, parameters=blob, manifest=blob)


def links(spec: JobSpec) -> tuple[Hash, ...]:
    return secrets.of_task(ZERO, spec.replication.max_replicas)


def offer_of(spec: JobSpec) -> Offer:
    anchor = secrets.anchor_of_task(ZERO, spec.replication.max_replicas)
    published = hash_of(publication(spec).digest)
    return Offer(1, published, 0, 0, 0, ZERO, ZERO, Units(7), anchor, 60, 30, 30)


def numbers(scale: float) -> dict[str, bytes]:
    return {"w": (np.arange(1, 65, dtype=np.float32) * np.float32(scale)).tobytes()}


def ballot(spec: JobSpec, number: int, root: Digest, wave: int = 0, salt: Hash = ZERO) -> PublishedBallot:
    """Returns the reveal of replica r-`number`, before it is judged."""
    name, who = digest_struct(DOMAIN, offer_of(spec)), address_of(key(1 + number))
    sealed = seal_commitment(name, who, salt, hash_of(root))
    signed = signature(key(1 + number), Commitment(name, who, sealed))
    return PublishedBallot(
        id=ReplicaId(f"r-{number}"),
        worker=who,
        state=ReplicaState.REVEALED,
        wave=wave,
        sealed=sealed,
        commitment_signature=signed,
        salt=salt,
        root=root,
        determinism_class="cpu",
    )


def sketched(spec: JobSpec, number: int, cast: PublishedBallot, seed: Hash, kind: tuple[str, float]) -> PublishedBallot:
    """The ballot with a sketch that its worker signed."""
    sketch = SketchRequest(numbers=numbers(kind[1]), determinism_class=kind[0], signature=bytes(65))
    signed = signature(key(1 + number), sketch.struct(digest_struct(DOMAIN, offer_of(spec)), cast.worker, seed))
    update = {"sketch": sketch.numbers, "determinism_class": kind[0], "sketch_signature": signed}
    return cast.model_copy(update=update)


def wave(spec: JobSpec, number: int, cast: Sequence[PublishedBallot]) -> PublishedWave:
    members = [(one.worker, Hash(one.sealed or b"")) for one in cast if one.wave == number]
    commitments, secret = digest_of(members), links(spec)[number]
    signed = signature(SIGNER, SignedWave(digest_struct(DOMAIN, offer_of(spec)), number, secret, commitments))
    seed = wave_seed(secret, commitments)
    return PublishedWave(number=number, commitments=commitments, secret=secret, seed=seed, signature=signed)


def judged(spec: JobSpec, cast: PublishedBallot, right: bool, root: Digest) -> PublishedBallot:
    """The ballot with its verdict: accepted with its own root, or rejected for `root`."""
    offer, accepted = offer_of(spec), (ReplicaState.PAYABLE, Outcome.ACCEPTED)
    state, outcome = accepted if right else (ReplicaState.REJECTED, Outcome.REJECTED)
    update = {"state": state, "outcome": int(outcome), "verdict_root": cast.root if right else root}
    told = cast.model_copy(update=update).verdict(offer.price if right else Units(0))
    signed = signature(SIGNER, told.struct(digest_struct(DOMAIN, offer), cast.worker))
    return cast.model_copy(update={**update, "verdict_signature": signed})


def evidence(spec: JobSpec, cast: Sequence[PublishedBallot], right: Sequence[bool], **more: Any) -> PublishedEvidence:
    """The evidence of a task that is over, in which the ballots that are `right` were accepted."""
    offer, root = offer_of(spec), next(one.root for one, fit in zip(cast, right, strict=True) if fit)
    shown = {
        "state": TaskState.FINAL,
        "root": root,
        "offer": OfferFields(**asdict(offer)),
        "offer_digest": digest_struct(DOMAIN, offer),
        "offer_signature": signature(SIGNER, offer),
        "waves": tuple(wave(spec, number, cast) for number in sorted({one.wave for one in cast})),
        "replicas": tuple(judged(spec, one, fit, Digest(root or "")) for one, fit in zip(cast, right, strict=True)),
        "plan": spec.plan(),
        "audit_link": links(spec)[-1],
    }
    return PublishedEvidence(**{**shown, **more})


def outvoted() -> PublishedEvidence:
    """Two against a third, in one wave: r-2 is rejected."""
    cast = [ballot(JOB, number, root) for number, root in enumerate((TRUE, TRUE, FALSE))]
    return evidence(JOB, cast, (True, True, False))


def in_two_waves() -> PublishedEvidence:
    """Three differ, and two more decide."""
    roots = ((TRUE, 0), (FALSE, 0), (THIRD, 0), (TRUE, 1), (TRUE, 1))
    cast = [ballot(JOB, number, *root) for number, root in enumerate(roots)]
    return evidence(JOB, cast, (True, False, False, True, True))


def by_sketches(kinds: Sequence[tuple[str, float]] = SKETCHES, allowed: Any = ALLOWED) -> PublishedEvidence:
    """Two classes agree against a third answer; an audit may follow, so its draw is not shown yet."""
    cast = [ballot(TOLERANT, number, root) for number, root in enumerate((TRUE, THIRD, FALSE))]
    seed = Hash(wave(TOLERANT, 0, cast).seed or b"")
    cast = [sketched(TOLERANT, number, one, seed, kinds[number]) for number, one in enumerate(cast)]
    hidden = {"state": TaskState.ACCEPTED, "plan": None, "audit_link": None}
    return evidence(TOLERANT, cast, (True, True, False), allowed=allowed, **hidden)


def case(spec: JobSpec, shown: PublishedEvidence) -> VerdictCase:
    return VerdictCase(DOMAIN, address_of(SIGNER), publication(spec).checks, shown)
