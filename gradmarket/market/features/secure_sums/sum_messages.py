"""The messages of an aggregation, as JSON. A holder is its number in the aggregation; a masked vector goes as bytes."""

from typing import Annotated, Final

from pydantic import Field, ValidationError

from gradmarket.market.errors import Refused
from gradmarket.market.fields import HashField, SignatureField, first_fault, hex_bytes
from gradmarket.market.job_parts import MOST_HOLDERS
from gradmarket.market.wire import Wire

SEALED: Final = 2 * 32 + 16
"""Bytes of both of a holder's shares for another, sealed (secure_sums.key_agreement)."""
HolderNumber = Annotated[int, Field(ge=0, lt=MOST_HOLDERS)]
SealedField = Annotated[bytes, *hex_bytes(SEALED)]
_SET: Final = MOST_HOLDERS // 8
SetField = Annotated[bytes, hex_bytes(1)[0], Field(min_length=1, max_length=_SET), hex_bytes(1)[2]]
"""A bit for each holder, the first in the highest bit, filled up with zeros."""

KeyListField = Annotated[bytes, hex_bytes(1)[0], Field(max_length=32 * MOST_HOLDERS), hex_bytes(1)[2]]
"""32 bytes for each holder, by number: the digest of its keys; zeros where it sent none (signed.key_list)."""


class HolderKeysMessage(Wire):
    """1, to the requester and then to each neighbour. The signature is of signed.HolderKeys."""

    holder: HolderNumber
    channel_key: HashField
    mask_key: HashField
    self_mark: HashField
    """The digest of the seed of the holder's own mask."""
    signature: SignatureField


class NeighbourKeys(Wire):
    """The message to a holder after step 1: the keys of its neighbours that sent theirs, and the digests of all."""

    keys: list[HolderKeysMessage] = Field(max_length=MOST_HOLDERS)
    key_list: KeyListField


class SealedShares(Wire):
    """The sender's two shares for one neighbour; only that one can open them. The marks are digests of the shares."""

    sender: HolderNumber
    receiver: HolderNumber
    self_mark: HashField
    mask_mark: HashField
    box: SealedField


class SharesMessage(Wire):
    """2, to the requester."""

    holder: HolderNumber
    shares: list[SealedShares] = Field(max_length=MOST_HOLDERS)


class SharesForHolder(Wire):
    """The message to a holder after step 2: the set of all sharers, and the shares of its neighbours among them."""

    sharers: SetField
    shares: list[SealedShares] = Field(max_length=MOST_HOLDERS)


class MaskedMessage(Wire):
    """3, to the requester with the vector's bytes, then to each neighbour. The signature is of signed.MaskedVector."""

    holder: HolderNumber
    vector: HashField
    broken: list[HolderNumber] = Field(max_length=MOST_HOLDERS)
    """The neighbours whose shares differ from their marks."""
    signature: SignatureField


class SurvivorsProposed(Wire):
    """The message to a holder after step 3: the set of holders whose vectors count."""

    survivors: SetField


class SurvivorsSigned(Wire):
    """4, to the requester and then to all survivors. The signature is of signed.Survivors."""

    holder: HolderNumber
    signature: SignatureField


class UnmaskRequest(Wire):
    """The message to a holder after step 4: a quorum's signatures, and its surviving neighbours' messages of step 3."""

    signatures: list[SurvivorsSigned] = Field(max_length=MOST_HOLDERS)
    masked: list[MaskedMessage] = Field(max_length=MOST_HOLDERS)


class RevealedShare(Wire):
    owner: HolderNumber
    share: HashField


class UnmaskAnswer(Wire):
    """5, to the requester: of each neighbour one share, of its own mask where it survived, else of its mask key."""

    holder: HolderNumber
    self_shares: list[RevealedShare] = Field(max_length=MOST_HOLDERS)
    mask_shares: list[RevealedShare] = Field(max_length=MOST_HOLDERS)


Said = HolderKeysMessage | SharesMessage | MaskedMessage | SurvivorsSigned | UnmaskAnswer
KINDS: Final[dict[int, type[Said]]] = {
    1: HolderKeysMessage,
    2: SharesMessage,
    3: MaskedMessage,
    4: SurvivorsSigned,
    5: UnmaskAnswer,
}
"""A holder's message in each step."""


def parse_step_message(step: int, body: bytes) -> Said:
    """Returns the message of a step from its JSON. Raises Refused, naming the field that cannot be read."""
    if step not in KINDS:
        raise Refused(f"a secure aggregation has the steps 1 to {len(KINDS)}")
    try:
        return KINDS[step].model_validate_json(body)
    except ValidationError as error:
        place, said = first_fault(error)
        raise Refused(f"the message of step {step} cannot be read: {place}: {said}"[:500]) from error


class StepTold(Wire):
    """The state of the aggregation, and the answer to the step that the holder asked about, once that step is over."""

    attempt: int = Field(ge=0, lt=2**31)
    """The attempt that is under way. A holder that took part in an earlier one, and unmasked nothing, begins anew."""
    step: int = Field(ge=0, le=6)
    """The open step: 1 to 5; 0 before the first, 6 once the sum is there."""
    keys: NeighbourKeys | None = None
    """After step 1."""
    shares: SharesForHolder | None = None
    """After step 2."""
    survivors: SurvivorsProposed | None = None
    """After step 3."""
    unmask: UnmaskRequest | None = None
    """After step 4."""
    summed: bool = False
    """Whether the sum is there and includes the holder's vector: it is then paid for its receipt."""
