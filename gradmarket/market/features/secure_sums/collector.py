"""The requester's side of an aggregation: pure functions over the messages that came, by holder.

`admit_…` refuses a message that breaks a rule; its holder then counts as dropped out. The others return the next
message for each holder, or refuse to continue the round: then nothing of it was unmasked, and it is done again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import Aggregation, secret_sharing, signed
from gradmarket.market.features.secure_sums.dealing import MASK, SEED, SELF
from gradmarket.market.features.secure_sums.key_agreement import (
    check_public,
    compute_mark,
    export_public_key,
    mask_key,
    pair_mask,
    self_mask,
)
from gradmarket.market.features.secure_sums.masks import add_masks
from gradmarket.market.features.secure_sums.ring import Elements, Integers
from gradmarket.market.features.secure_sums.sum_messages import (
    HolderKeysMessage,
    MaskedMessage,
    NeighbourKeys,
    RevealedShare,
    SealedShares,
    SharesForHolder,
    SharesMessage,
    SurvivorsSigned,
    UnmaskAnswer,
    UnmaskRequest,
)
from gradmarket.market.signing import Domain

Keys = Mapping[int, HolderKeysMessage]
Shares = Mapping[int, SharesMessage]


def admit_keys(aggregation: Aggregation, domain: Domain, known: Keys, message: HolderKeysMessage) -> None:
    """Raises Refused where they are not signed by the holder, were sent by another, or give no secrecy."""
    struct = signed.holder_keys(aggregation, message)
    signed.check_holder_signature(aggregation, domain, struct, message.holder, message.signature)
    if message.holder in known:
        raise Refused(f"holder {message.holder} has sent its keys already")
    own = {message.channel_key, message.mask_key}
    if len(own) < 2 or any(own & {other.channel_key, other.mask_key} for other in known.values()):
        raise Refused(f"holder {message.holder} sent a key twice, or another's")
    for key in own:
        check_public(key)


def neighbour_keys(aggregation: Aggregation, keys: Keys) -> dict[int, NeighbourKeys]:
    """Returns the message for each holder after step 1. Raises Refused where too few sent keys."""
    _check_holder_count(aggregation, len(keys), "sent keys")
    shown = signed.key_list(aggregation, keys)
    return {
        holder: NeighbourKeys(
            keys=[keys[other] for other in aggregation.points[holder] if other in keys], key_list=shown
        )
        for holder in keys
    }


def admit_shares(aggregation: Aggregation, keys: Keys, message: SharesMessage) -> None:
    """Raises Refused unless there are shares for each neighbour that sent keys, once."""
    if message.holder not in keys:
        raise Refused(f"holder {message.holder} did not send its keys")
    wanted = [other for other in aggregation.points[message.holder] if other in keys]
    senders = {shares.sender for shares in message.shares}
    if sorted(shares.receiver for shares in message.shares) != wanted:
        raise Refused(f"holder {message.holder} did not send its shares to each neighbour once")
    if senders != {message.holder}:
        raise Refused(f"holder {message.holder} sent shares in another's name")


def shares_for_holders(aggregation: Aggregation, shares: Shares) -> tuple[bytes, dict[int, SharesForHolder]]:
    """Returns the set of sharers, and the message for each after step 2. Raises Refused where too few shared."""
    _check_holder_count(aggregation, len(shares), "shared")
    sharers = aggregation.packed(shares)
    sent: dict[int, list[SealedShares]] = {holder: [] for holder in shares}
    for message in shares.values():
        for sealed in message.shares:
            if sealed.receiver in sent:
                sent[sealed.receiver].append(sealed)
    return sharers, {holder: SharesForHolder(sharers=sharers, shares=found) for holder, found in sent.items()}


def admit_masked(
    aggregation: Aggregation,
    domain: Domain,
    key_list: bytes,
    sharers: bytes,
    message: MaskedMessage,
    vector: bytes | memoryview,
) -> Elements:
    """Returns the masked vector, to be added to the others. Raises Refused where it is not the signed one."""
    struct = signed.masked_vector(aggregation, signed.key_list_digest(key_list), sharers, message)
    signed.check_holder_signature(aggregation, domain, struct, message.holder, message.signature)
    if not aggregation.members(sharers)[message.holder]:
        raise Refused(f"holder {message.holder} did not share its secrets")
    elements = aggregation.ring.read(vector, aggregation.size)
    if signed.vector_digest(vector) != message.vector:
        raise Refused(f"holder {message.holder}'s vector is not the one that it signed")
    return elements


def pack_survivors(aggregation: Aggregation, sharers: bytes, masked: Iterable[int]) -> bytes:
    """Returns the set of holders whose vectors came. Raises Refused where their sum could not be unmasked."""
    packed = aggregation.packed(masked)
    aggregation.check_survivors(aggregation.members(sharers), aggregation.members(packed))
    return packed


def admit_signature(
    aggregation: Aggregation, domain: Domain, sharers: bytes, survivors: bytes, message: SurvivorsSigned
) -> None:
    """Raises Refused unless one of the survivors signed this set."""
    digest = signed.survivors_digest(aggregation, domain, sharers, survivors)
    signed.check_digest(aggregation, digest, message.holder, message.signature)
    if not aggregation.members(survivors)[message.holder]:
        raise Refused(f"holder {message.holder} is not among the survivors")


def unmask_requests(
    aggregation: Aggregation,
    survivors: bytes,
    signatures: Mapping[int, SurvivorsSigned],
    masked: Mapping[int, MaskedMessage],
) -> dict[int, UnmaskRequest]:
    """Returns the message for each signer after step 4. Raises Refused where too few signed."""
    quorum, members = aggregation.plan.quorum, aggregation.members(survivors)
    if len(signatures) < quorum:
        raise Refused(f"{len(signatures)} holders signed the survivors, and {quorum} must have", "wait for the others")
    enough = list(signatures.values())[:quorum]
    return {
        holder: UnmaskRequest(
            signatures=enough, masked=[masked[other] for other in aggregation.points[holder] if members[other]]
        )
        for holder in signatures
    }


def admit_answer(aggregation: Aggregation, survivors: bytes, shares: Shares, message: UnmaskAnswer) -> None:
    """Raises Refused where a share is not the one that its owner dealt to this holder, or not of the right secret."""
    members, dealt = aggregation.members(survivors), aggregation.digest
    for revealed, name, stayed in ((message.self_shares, SELF, True), (message.mask_shares, MASK, False)):
        for share in revealed:
            of_owner = shares[share.owner].shares if share.owner in shares else ()
            sealed = next((one for one in of_owner if one.receiver == message.holder), None)
            if sealed is None:
                raise Refused(f"holder {share.owner} dealt no shares to holder {message.holder}")
            marked = sealed.self_mark if stayed else sealed.mask_mark
            if bool(members[share.owner]) is not stayed or compute_mark(share.share, dealt, name) != marked:
                raise Refused(f"holder {message.holder} revealed a share that holder {share.owner} did not deal to it")


@dataclass(frozen=True)
class MasksLeft:
    """The keys of the masks that are still in a sum: to be added to it, and to be taken off."""

    plus: list[bytes]
    minus: list[bytes]

    def taken_off(self, aggregation: Aggregation, total: Elements) -> Integers:
        """Returns the plain sum of the survivors' integers from the sum of their masked vectors."""
        plain = total.copy()
        add_masks(plain, self.plus, self.minus)
        return aggregation.ring.integers(plain)


def masks_left(
    aggregation: Aggregation, keys: Keys, sharers: bytes, survivors: bytes, answers: Iterable[UnmaskAnswer]
) -> MasksLeft:
    """Returns the masks in the sum of the survivors' vectors.

    Raises Refused, and names the holder, where one of the secrets cannot be put together from the answers.
    """
    # For each owner the shares that came, by their points
    found: dict[int, dict[int, bytes]] = {}
    for answer in answers:
        shares: list[RevealedShare] = [*answer.self_shares, *answer.mask_shares]
        for share in shares:
            found.setdefault(share.owner, {})[aggregation.points[share.owner][answer.holder]] = share.share
    left = MasksLeft([], [])
    members = aggregation.members(survivors)
    for owner in aggregation.members(sharers).nonzero()[0].tolist():
        others = [other for other in aggregation.points[owner] if members[other]]
        if not members[owner] and not others:
            continue
        came, threshold = found.get(owner, {}), aggregation.plan.threshold
        if len(came) < threshold:
            needed = f"{len(came)} shares of holder {owner} came, and {threshold} are needed"
            raise Refused(needed, "ask the others, or do it again")
        seed, own = secret_sharing.combine_shares(dict(sorted(came.items())[:threshold])), keys[owner]
        foreign = Refused(f"holder {owner} dealt shares that are not of its secret", "do the round without it")
        if members[owner]:
            if compute_mark(seed, aggregation.digest, SEED) != own.self_mark:
                raise foreign
            left.minus.append(self_mask(seed, aggregation.digest))
            continue
        private = mask_key(seed, aggregation.digest)
        if export_public_key(private) != own.mask_key:
            raise foreign
        for other in others:  # the masks that survivors have in common with a holder that dropped out
            key = pair_mask(private, (owner, own.mask_key), (other, keys[other].mask_key), aggregation.digest)
            (left.minus if other < owner else left.plus).append(key)
    return left


def _check_holder_count(aggregation: Aggregation, count: int, noun: str) -> None:
    if count < aggregation.plan.least:
        raise Refused(f"{count} holders {noun}, and {aggregation.plan.least} are needed", "do the round again")
