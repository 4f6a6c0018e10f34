"""Checks waves, verdicts and vouchers before they are trusted. Pure; each breach names its attack."""

from enum import StrEnum
from typing import Final

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.messages import Offer, Outcome, Voucher
from gradmarket.market.rules.lifecycle import PAID, over
from gradmarket.market.rules.secrets import digest_of, leads_to
from gradmarket.market.signing import Domain, Struct, check, digest
from gradmarket.market.terms import Address, Hash, ReplicaState, Units
from gradmarket.market.wire import SignedVerdict, WaveOpened, hash_of

JUDGED: Final = frozenset({ReplicaState.AGREE, ReplicaState.REJECTED, *PAID})
"""States that need a signed verdict; only a rejection of a reveal that does not open its commitment needs none."""
BEFORE_REVEAL: Final = frozenset({ReplicaState.LEASED, ReplicaState.COMMITTED})
PROMISES: Final = frozenset({Outcome.ACCEPTED, Outcome.DIVERGED})


class Breach(StrEnum):
    """Breaches of the protocol by the requester, with what it would gain."""

    LEFT_OUT = "the wave was closed without this worker's commitment"
    """Reveal the secret to the others and call this worker late."""
    WRONG_SECRET = "the wave's secret does not lead to the offer's anchor"
    """Choose the secret after seeing the commitments, and so the draw of the uploader."""
    UNSIGNED_WAVE = "the wave is not signed by the offer's signer"
    """Get the reveal, and leave no evidence of what the wave closed over."""
    UNSIGNED_VERDICT = "the verdict is not signed by the offer's signer"
    """A promise to pay that binds nobody, or a rejection that nobody answers for."""
    OTHER_ROOT = "it accepted a payload that this worker did not make"
    OTHER_PRICE = "the verdict promises another price than the offer"
    """Offer one price and pay another."""
    CONTRADICTION = "the verdict's state and its signed outcome disagree"
    """Say 'accepted' and sign 'rejected'."""
    REJECTED_UNPROVEN = "it rejected this worker's answer without a quorum for another one"
    """Take the work and call it wrong."""
    BROKEN_PROMISE = "it promised pay under signature and paid nothing"
    """Take the bytes, or the vote of one among many, and give any reason for not paying."""
    UNSIGNED_VOUCHER = "the voucher is not signed by the job's voucher signer"
    """A voucher on somebody else's deposit."""
    LESS_THAN_BEFORE = "the voucher is worth less than an earlier one"
    """Cumulative pay that falls: the new voucher would redeem nothing."""


def signed(domain: Domain, struct: Struct, signature: bytes, signer: Address) -> bool:
    try:
        check(domain, struct, signature, signer)
    except (SignatureRefused, OverflowError):
        return False
    return True


def wave(domain: Domain, offer: Offer, opened: WaveOpened, me: tuple[Address, Hash], signer: Address) -> Breach | None:
    """Decides whether to reveal: `me` is this worker and its sealed commitment."""
    commitments = tuple(opened.commitments)
    if not leads_to(opened.secret, opened.wave, offer.anchor):
        return Breach.WRONG_SECRET
    if me not in commitments:
        return Breach.LEFT_OUT
    struct = opened.struct(digest(domain, offer), digest_of(commitments))
    return None if signed(domain, struct, opened.signature, signer) else Breach.UNSIGNED_WAVE


def verdict(domain: Domain, offer: Offer, told: SignedVerdict, worker: Address, signer: Address) -> Breach | None:
    """Checks whether the verdict is validly signed and its state matches its outcome."""
    if told.signature is None:
        return Breach.UNSIGNED_VERDICT if told.state in JUDGED - {ReplicaState.REJECTED} else None
    if not signed(domain, told.struct(digest(domain, offer), worker), told.signature, signer):
        return Breach.UNSIGNED_VERDICT
    return Breach.CONTRADICTION if _contradicts(told) else None


def _contradicts(told: SignedVerdict) -> bool:
    promised = told.outcome in PROMISES
    if told.state in PAID or told.state is ReplicaState.AGREE:
        return not promised
    return promised and told.state is ReplicaState.REJECTED


def breaks_promise(state: ReplicaState, asked: bool, sent: bool) -> bool:
    """Returns whether a replica with a signed promise of pay ended unpaid, except by its worker's own silence.

    `sent`: a byte of the payload may have been sent. Then it counts as taken, whole or not, whatever reason the market
    gives. If the worker was `asked` for the payload and never began to send it, the worker itself withheld it. A
    replica that agreed but was not asked is paid with the others: only a payment ends it.
    """
    own_silence = state is ReplicaState.WITHHELD and asked and not sent
    return over(state) and state not in PAID and not own_silence


def fairness(offer: Offer, told: SignedVerdict, root: Hash, revealed: bool) -> Breach | None:
    """Checks whether an honest requester could give this verdict on a payload with this `root`."""
    if told.state in PAID or told.state is ReplicaState.AGREE:
        if told.root is None or hash_of(told.root) != root:
            return Breach.OTHER_ROOT
        return Breach.OTHER_PRICE if told.price < offer.price else None
    if told.state is ReplicaState.REJECTED and revealed:
        return Breach.REJECTED_UNPROVEN if _unproven(told, root) else None
    return None


def _unproven(told: SignedVerdict, root: Hash) -> bool:
    return told.signature is None or told.root is None or hash_of(told.root) == root


def voucher(domain: Domain, told: Voucher, signature: bytes, signer: Address, before: Units) -> Breach | None:
    """Decides whether to keep the voucher; `before` is the job's newest cumulative sum so far."""
    if not signed(domain, told, signature, signer):
        return Breach.UNSIGNED_VOUCHER
    return Breach.LESS_THAN_BEFORE if told.cumulative < before else None
