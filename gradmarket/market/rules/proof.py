"""The proof of the statements that a requester signed about one replica: offer, wave, verdict, voucher. Pure.

Only the signer is taken as given: the voucher signer of the job on-chain. A worker calls this before it reveals and
before it believes a verdict, and again over its records; features.verify calls it over a market's publications.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.messages import Commitment, Offer, Outcome, SignedWave, Voucher
from gradmarket.market.rules.lifecycle import PAID, is_final_state
from gradmarket.market.rules.secrets import digest_of, leads_to, seal_commitment
from gradmarket.market.signing import Domain, Struct, check_struct_signature, digest_struct
from gradmarket.market.terms import Address, Digest, Hash, ReplicaState
from gradmarket.market.wire.poll import SignedVerdict, WaveOpened, hash_of

ACCEPTING: Final = frozenset({ReplicaState.AGREE, *PAID})
"""States that promise pay. Without a signed verdict they bind nobody."""
BEFORE_REVEAL: Final = frozenset({ReplicaState.LEASED, ReplicaState.COMMITTED})
PROMISES: Final = frozenset({Outcome.ACCEPTED, Outcome.DIVERGED})


class Fault(StrEnum):
    """A failed proof of the evidence, with a requester's gain by it."""

    UNSIGNED_OFFER = "the offer is not signed by the signer of the chain's job"
    """An offer that binds nobody."""
    OTHER_OFFER = "the offer's digest is another than the one named"
    OTHER_SPEC = "the offer names another specification than the job's"
    UNSIGNED_COMMITMENT = "the commitment is not signed by its worker"
    """Ballots of workers that never voted."""
    BROKEN_COMMITMENT = "salt and root do not open the commitment"
    """Answers changed after the wave was opened."""
    TWO_BALLOTS = "one worker, or one replica, has two ballots"
    LEFT_OUT = "the wave was closed without this worker's commitment"
    """Reveal the secret to the others and call this worker late."""
    OTHER_COMMITMENTS = "the wave closed over other commitments"
    """Leave a ballot out, or add one, once the answers are known."""
    WRONG_SECRET = "the wave's secret does not lead to the offer's anchor"
    """Choose the secret after seeing the commitments, and so the draw of the uploader."""
    OTHER_SEED = "the wave's seed is another seed than its secret and commitments give"
    UNSIGNED_WAVE = "the wave is not signed by the offer's signer"
    """Get the reveal, and leave no evidence of the commitments that the wave closed over."""
    UNSIGNED_SKETCH = "the sketch is not signed by its worker"
    """Show other sketches than the judged ones."""
    NO_CALIBRATION = "no calibration gives the thresholds"
    OTHER_HEARING = "a referee heard others than those that answered it differently"
    """Have a liar lose to a friend, and an honest answer with it."""
    HIDDEN_ANSWER = "its referee has an answer, by its receipt, that it does not show"
    """Have an honest side lose by silence."""
    UNHEARD = "its answers differed, and more workers were asked without a referee"
    """Have friends outvote an answer that a referee would have found right."""
    NO_TASK_ROOT = "the task is decided, and its root is not shown"
    OTHER_TASK_ROOT = "by its ballots the task has another root"
    UNSIGNED_VERDICT = "the verdict is not signed by the offer's signer"
    """A promise to pay that binds nobody, or a rejection that nobody answers for."""
    CONTRADICTION = "the verdict's state and its signed outcome disagree"
    """Announce 'accepted' and sign 'rejected'."""
    OTHER_ROOT = "it promises pay for another root than this worker's own"
    OTHER_PRICE = "the verdict promises another price than the offer"
    """Offer one price and pay another."""
    AGAINST_QUORUM = "it promises pay for another root than the quorum's"
    PAID_WITHOUT_AUDIT = "it is paid against the quorum, and no audit found its root, or one near it"
    REJECTED_UNPROVEN = "it rejected this worker's answer without a quorum for another one"
    """Take the work and call it wrong."""
    OTHER_VERDICT = "the market publishes another verdict than the one that it sent"
    NO_PLAN = "the plan that it was checked by is not shown, though the task is over"
    NO_LINK = "the link that draws audits is not shown, though the task is over"
    """Choose whom to audit."""
    WRONG_LINK = "the link that draws audits does not lead to the offer's anchor"
    OTHER_PLAN = "the job promises another plan than the one that it was checked by"
    NO_AUDIT = "it was drawn for an audit, and there is none"
    NOT_SHOWN = "no ballot is shown yet: evidence opens when the task is decided"
    NOT_LOGGED = "the log of the batch that pays it, or of the ended job, lacks its verdict"
    """Show others a history in which this worker's verdict never was."""
    UNSIGNED_HEAD = "the head of its log is not signed by the signer of the chain's job"
    FORKED_LOG = "it showed two histories of the job's log, and admits no restore between them"
    """Show each observer its own."""
    BROKEN_PROMISE = "it promised pay under signature and paid nothing"
    """Take the bytes, or the vote of one among many, and give any reason for not paying."""
    TAKEN_UNPAID = "it took the payload, which nobody else votes on, and paid nothing"
    """Take the bytes that come with a commitment, and give any reason for not paying."""
    UNSIGNED_VOUCHER = "the voucher is not signed by the job's voucher signer"
    """A voucher on somebody else's deposit."""
    SHORT_VOUCHER = "the newest voucher is for less than the accepted verdicts promise"
    NOT_RESERVED = "the reservation on-chain does not cover what the accepted verdicts promise"
    SKIPPED = "a batch settled what was accepted later, and no batch holds this gradient"
    FALSE_ROOT = "the contract's root of a batch does not prove a gradient that its events name"
    UNPROVEN_BURN = "locked pay was burnt, and nothing that is published shows a wrong answer of this worker's"
    """Burn the pay of honest work, with validators of its own."""
    MISSING_GRADIENT = "the market's payments lack a gradient that it accepted"


@dataclass(frozen=True, slots=True)
class OfferScope:
    """The references for checking signatures: the domain, the requester's signer, and the offer in question."""

    domain: Domain
    signer: Address
    offer: Offer

    @property
    def name(self) -> Hash:
        """The offer's digest. Raises OverflowError where its numbers are none that can be signed."""
        return digest_struct(self.domain, self.offer)

    def by_signer(self, struct: Struct, signature: bytes | None) -> bool:
        return is_signed_by(self.domain, struct, signature, self.signer)

    def commits(self, worker: Address, sealed: Hash, signature: bytes | None) -> bool:
        """Returns whether the worker signed this commitment to the offer."""
        return is_signed_by(self.domain, Commitment(self.name, worker, sealed), signature, worker)

    def is_seal_opened(self, worker: Address, sealed: Hash, salt: Hash | None, root: Digest | None) -> bool:
        """Returns whether salt and root open the worker's commitment."""
        return (
            salt is not None and root is not None and seal_commitment(self.name, worker, salt, hash_of(root)) == sealed
        )


def is_signed_by(domain: Domain, struct: Struct, signature: bytes | None, signer: Address) -> bool:
    try:
        check_struct_signature(domain, struct, signature or b"", signer)
    except (SignatureRefused, OverflowError):
        return False
    return True


def of_offer(scope: OfferScope, signature: bytes, spec: Hash) -> Iterator[Fault]:
    """Yields the faults of an offer; `spec` is the digest of the job's publication."""
    if not scope.by_signer(scope.offer, signature):
        yield Fault.UNSIGNED_OFFER
    if scope.offer.spec != spec:
        yield Fault.OTHER_SPEC


def of_wave(
    scope: OfferScope, number: int, secret: Hash | None, commitments: Hash, signature: bytes | None
) -> Iterator[Fault]:
    """Yields the faults of a wave that closed over the commitments with this digest."""
    if secret is None or not leads_to(secret, number, scope.offer.anchor):
        yield Fault.WRONG_SECRET
    if secret is None or not scope.by_signer(SignedWave(scope.name, number, secret, commitments), signature):
        yield Fault.UNSIGNED_WAVE


def of_opening(scope: OfferScope, opened: WaveOpened, me: Address, sealed: Hash) -> Iterator[Fault]:
    """Yields the reasons not to reveal in a wave that was opened to the worker `me`."""
    yield from of_wave(scope, opened.wave, opened.secret, digest_of(opened.commitments), opened.signature)
    if (me, sealed) not in opened.commitments:
        yield Fault.LEFT_OUT


def of_verdict(scope: OfferScope, verdict: SignedVerdict, worker: Address) -> Fault | None:
    """Checks whether the verdict is validly signed and its state matches its outcome."""
    if verdict.signature is None:
        return Fault.UNSIGNED_VERDICT if verdict.state in ACCEPTING or verdict.outcome is not None else None
    if verdict.outcome is None or not scope.by_signer(verdict.struct(scope.name, worker), verdict.signature):
        return Fault.UNSIGNED_VERDICT
    promised = verdict.outcome in PROMISES
    contradicts = not promised if verdict.state in ACCEPTING else promised and verdict.state is ReplicaState.REJECTED
    return Fault.CONTRADICTION if contradicts else None


def of_answer(offer: Offer, verdict: SignedVerdict, root: Hash, revealed: bool) -> Fault | None:
    """Checks whether an honest requester could give this verdict on a payload with this `root`."""
    same = verdict.root is not None and hash_of(verdict.root) == root
    if verdict.state in ACCEPTING:
        if not same:
            return Fault.OTHER_ROOT
        return Fault.OTHER_PRICE if verdict.price < offer.price else None
    unproven = verdict.signature is None or verdict.root is None or same
    return Fault.REJECTED_UNPROVEN if verdict.state is ReplicaState.REJECTED and revealed and unproven else None


def breaks_promise(state: ReplicaState, asked: bool, sent: bool) -> bool:
    """Returns whether a replica with a signed promise of pay ended unpaid, except by its worker's own silence.

    `sent`: a byte of the payload may have been sent. Then it counts as taken, whole or not, for any reason that the
    market gives. If the worker was `asked` for the payload and never began to send it, the worker itself withheld it. A
    replica that agreed but was not asked is paid with the others: only a payment ends it.
    """
    own_silence = state is ReplicaState.WITHHELD and asked and not sent
    return is_final_state(state) and state not in PAID and not own_silence


def of_voucher(domain: Domain, voucher: Voucher, signature: bytes, signer: Address) -> Fault | None:
    """Decides whether to keep the voucher. One worth less than another that is kept is only late, not a fault."""
    return None if is_signed_by(domain, voucher, signature, signer) else Fault.UNSIGNED_VOUCHER
