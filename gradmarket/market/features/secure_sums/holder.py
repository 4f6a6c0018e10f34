"""A holder's side of an aggregation: five steps, each a function of the state before it and of one message.

A state is stored before its message is sent, so no step is taken twice. Each function raises Refused, with the reason,
where the requester's demand would weaken the protection of this holder or another; the holder then drops out of the
round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeVar

from gradmarket.market import signing
from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import Aggregation, dealing, signed
from gradmarket.market.features.secure_sums.dealing import SEED
from gradmarket.market.features.secure_sums.key_agreement import (
    KEY,
    Secrets,
    check_public,
    compute_mark,
    export_public_key,
    pair_mask,
    self_mask,
    share_channel,
)
from gradmarket.market.features.secure_sums.masks import add_masks
from gradmarket.market.features.secure_sums.ring import Integers
from gradmarket.market.features.secure_sums.sum_messages import (
    HolderKeysMessage,
    MaskedMessage,
    NeighbourKeys,
    RevealedShare,
    SharesForHolder,
    SharesMessage,
    SurvivorsProposed,
    SurvivorsSigned,
    UnmaskAnswer,
    UnmaskRequest,
)
from gradmarket.market.signing import Domain, Signer
from gradmarket.market.terms import Hash

_Message = TypeVar("_Message", HolderKeysMessage, MaskedMessage)


class HolderStep(IntEnum):
    """The last message of the holder."""

    KEYS = 1
    SHARES = 2
    MASKED = 3
    SIGNED = 4
    UNMASKED = 5


@dataclass(frozen=True)
class Seat:
    """A holder in one aggregation."""

    aggregation: Aggregation
    domain: Domain
    number: int
    secrets: Secrets
    sign: Signer


@dataclass(frozen=True)
class HolderState:
    """By neighbour: its keys, the secret of its channel with this holder, and its two shares for this holder.

    `shown` is the digest of all holders' keys, as this one received them; `sharers` and `survivors` are the sets that
    it accepted.
    """

    seat: Seat
    step: HolderStep
    keys: Mapping[int, HolderKeysMessage] = field(default_factory=dict)
    channels: Mapping[int, bytes] = field(default_factory=dict)
    shares: Mapping[int, tuple[bytes, bytes]] = field(default_factory=dict)
    shown: Hash = signed.NO_KEYS
    sharers: bytes = b""
    survivors: bytes = b""


def build_seat(aggregation: Aggregation, domain: Domain, number: int, entropy: bytes, sign: Signer) -> Seat:
    """Returns a holder's seat. `entropy`: 32 bytes from the system's generator, kept from all others.

    Raises Refused where this number of holders cannot be protected.
    """
    signed.select_holder_address(aggregation, number)
    if len(entropy) != KEY:
        raise Refused(f"a holder's entropy has {KEY} bytes, not {len(entropy)}")
    _ = aggregation.plan, aggregation.ring
    return Seat(aggregation, domain, number, Secrets(entropy, aggregation.digest), sign)


def advertise_keys(seat: Seat) -> tuple[HolderState, HolderKeysMessage]:
    """1: its public keys, and the mark of its own mask's seed."""
    secrets = seat.secrets
    message = HolderKeysMessage(
        holder=seat.number,
        channel_key=Hash(export_public_key(secrets.channel)),
        mask_key=Hash(export_public_key(secrets.mask)),
        self_mark=compute_mark(secrets.self_seed, secrets.aggregation, SEED),
        signature=bytes(65),
    )
    digest = signing.digest_struct(seat.domain, signed.holder_keys(seat.aggregation, message))
    message = message.model_copy(update={"signature": seat.sign(digest)})
    return HolderState(seat, HolderStep.KEYS, {seat.number: message}), message


def share_secrets(state: HolderState, received: NeighbourKeys) -> tuple[HolderState, SharesMessage]:
    """2: two shares for each neighbour whose keys came, sealed for it alone."""
    _check_step(state, HolderStep.KEYS)
    seat, aggregation = state.seat, state.seat.aggregation
    keys = _by_holder(received.keys)
    _check_neighbours(state, keys)
    for message in received.keys:
        struct = signed.holder_keys(aggregation, message)
        signed.check_holder_signature(aggregation, seat.domain, struct, message.holder, message.signature)
        for key in (message.channel_key, message.mask_key):
            check_public(key)
    own = state.keys[seat.number]
    everyone = [*received.keys, own]
    if len({key for one in everyone for key in (one.channel_key, one.mask_key)}) < 2 * len(everyone):
        raise Refused("two of the keys are the same")
    # The list has this holder's keys, and of its neighbours just those that it was given. Each holder signs the list
    # with its vector, and unmasks only neighbours that signed the same: so all whose sum it is were shown the same keys
    shown_keys, width = keys | {seat.number: own}, len(signed.NO_KEYS)
    if len(received.key_list) != width * len(aggregation.holders):
        raise Refused(
            f"a list of {len(aggregation.holders)} holders' keys does not have {len(received.key_list)} bytes"
        )
    for other in (seat.number, *aggregation.points[seat.number]):
        listed = received.key_list[width * other : width * (other + 1)]
        if listed != (signed.keys_digest(shown_keys[other]) if other in shown_keys else signed.NO_KEYS):
            raise Refused(f"holder {other}'s keys differ from the list that all holders see")
    channels = {
        other: share_channel(
            seat.secrets.channel, (seat.number, own.channel_key), (other, message.channel_key), aggregation.digest
        )
        for other, message in keys.items()
    }
    shares = SharesMessage(
        holder=seat.number, shares=dealing.deal_shares(aggregation, seat.number, seat.secrets, channels)
    )
    shown = signed.key_list_digest(received.key_list)
    return replace(state, step=HolderStep.SHARES, keys=keys, channels=channels, shown=shown), shares


def mask_integers(
    state: HolderState, received: SharesForHolder, integers: Integers
) -> tuple[HolderState, MaskedMessage, bytes]:
    """3: its integers under its own mask and those that it has in common with each neighbour that shared."""
    _check_step(state, HolderStep.SHARES)
    seat, aggregation = state.seat, state.seat.aggregation
    sharers = aggregation.members(received.sharers)
    if not sharers[seat.number] or int(sharers.sum()) < aggregation.plan.least:
        raise Refused(f"{int(sharers.sum())} holders shared, and {aggregation.plan.least} with this one are needed")
    sent = {shares.sender: shares for shares in received.shares if shares.receiver == seat.number}
    wanted = {other for other in aggregation.points[seat.number] if sharers[other]}
    if len(sent) < len(received.shares) or sent.keys() != wanted or not wanted <= state.keys.keys():
        raise Refused("the shares are not one from each neighbour that shared")
    _check_neighbours(state, sent)
    opened = {
        sender: dealing.open_shares(aggregation.digest, state.channels[sender], shares)
        for sender, shares in sent.items()
    }
    if integers.shape != (aggregation.size,):
        raise Refused(f"a vector has {aggregation.size} integers, not {integers.shape}")
    elements = aggregation.ring.elements(integers, aggregation.most)
    plus, minus = [self_mask(seat.secrets.self_seed, aggregation.digest)], list[bytes]()
    own = seat.number, export_public_key(seat.secrets.mask)
    for other in sorted(wanted):  # of two neighbours the one of the lower number adds their common mask
        key = pair_mask(seat.secrets.mask, own, (other, state.keys[other].mask_key), aggregation.digest)
        (plus if seat.number < other else minus).append(key)
    add_masks(elements, plus, minus)
    vector = elements.tobytes()
    message = MaskedMessage(
        holder=seat.number,
        vector=signed.vector_digest(vector),
        broken=[sender for sender, found in opened.items() if found is None],
        signature=bytes(65),
    )
    digest = signing.digest_struct(
        seat.domain, signed.masked_vector(aggregation, state.shown, received.sharers, message)
    )
    message = message.model_copy(update={"signature": seat.sign(digest)})
    shares = {sender: found for sender, found in opened.items() if found is not None}
    return replace(state, step=HolderStep.MASKED, shares=shares, sharers=received.sharers), message, vector


def sign_survivors(state: HolderState, received: SurvivorsProposed) -> tuple[HolderState, SurvivorsSigned]:
    """4: its signature of the one set of survivors that it will help to unmask."""
    _check_step(state, HolderStep.MASKED)
    seat, aggregation = state.seat, state.seat.aggregation
    survivors = aggregation.members(received.survivors)
    if not survivors[seat.number]:
        raise Refused("this holder's own vector is not in the sum")
    aggregation.check_survivors(aggregation.members(state.sharers), survivors)
    digest = signed.survivors_digest(aggregation, seat.domain, state.sharers, received.survivors)
    message = SurvivorsSigned(holder=seat.number, signature=seat.sign(digest))
    return replace(state, step=HolderStep.SIGNED, survivors=received.survivors), message


def reveal_mask_shares(state: HolderState, received: UnmaskRequest) -> tuple[HolderState, UnmaskAnswer]:
    """5: of each neighbour one share: of its own mask's seed where it survived, else of its mask key's."""
    _check_step(state, HolderStep.SIGNED)
    seat, aggregation = state.seat, state.seat.aggregation
    survivors = aggregation.members(state.survivors)
    signers = {message.holder for message in received.signatures}
    if len(signers) < len(received.signatures) or len(signers) < aggregation.plan.quorum:
        raise Refused(f"{len(signers)} holders signed the survivors, and {aggregation.plan.quorum} must have")
    digest = signed.survivors_digest(aggregation, seat.domain, state.sharers, state.survivors)
    for signature in received.signatures:
        signed.check_digest(aggregation, digest, signature.holder, signature.signature)
        if not survivors[signature.holder]:
            raise Refused(f"holder {signature.holder} signed, and is not among the survivors")
    masked = _by_holder(received.masked)
    if masked.keys() != {other for other in aggregation.points[seat.number] if survivors[other]}:
        raise Refused("the masked vectors are not one of each neighbour that survived")
    for message in received.masked:
        struct = signed.masked_vector(aggregation, state.shown, state.sharers, message)
        signed.check_holder_signature(aggregation, seat.domain, struct, message.holder, message.signature)
    answer = UnmaskAnswer(
        holder=seat.number,
        self_shares=[_build_revealed_share(owner, own) for owner, (own, _) in state.shares.items() if survivors[owner]],
        mask_shares=[
            _build_revealed_share(owner, pair) for owner, (_, pair) in state.shares.items() if not survivors[owner]
        ],
    )
    return replace(state, step=HolderStep.UNMASKED), answer


def _check_step(state: HolderState, step: HolderStep) -> None:
    if state.step is not step:
        raise Refused(f"this holder is at step {state.step.value} of the aggregation, not at {step.value}")


def _by_holder(messages: Sequence[_Message]) -> dict[int, _Message]:
    found = {message.holder: message for message in messages}
    if len(found) < len(messages):
        raise Refused("one holder is named twice")
    return found


def _check_neighbours(state: HolderState, found: Mapping[int, object]) -> None:
    """Raises Refused where one of them is no neighbour, or they are too few."""
    aggregation = state.seat.aggregation
    if not found.keys() <= aggregation.points[state.seat.number].keys():
        raise Refused("a named holder is not a neighbour of this one")
    if len(found) < aggregation.plan.threshold:
        raise Refused(f"{len(found)} neighbours take part, and {aggregation.plan.threshold} are needed")


def _build_revealed_share(owner: int, share: bytes) -> RevealedShare:
    return RevealedShare(owner=owner, share=Hash(share))
