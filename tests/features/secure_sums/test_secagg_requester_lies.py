"""A requester that lies in an aggregation: each lie is refused by the holders, and gives no vector away."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from gradmarket.market import signing
from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import collector, holder, key_agreement, secret_sharing, signed
from gradmarket.market.features.secure_sums.key_agreement import agree_secret, pair_mask
from gradmarket.market.features.secure_sums.masks import add_masks
from gradmarket.market.features.secure_sums.secret_sharing import PRIME
from gradmarket.market.features.secure_sums.sum_messages import (
    HolderKeysMessage,
    NeighbourKeys,
    SharesForHolder,
    SurvivorsProposed,
    SurvivorsSigned,
    UnmaskRequest,
)
from gradmarket.market.terms import Hash
from tests.kit.aggregation_play import DOMAIN, STEPS, AggregationPlay, Played
from tests.lanes import FULL

COUNT = 9
PLAY = AggregationPlay(COUNT, 20, 100, 1, 3, seed=5)
SPARSE = AggregationPlay(120, 4, 100, 12, 30, seed=6)


def at(step: int, play: AggregationPlay = PLAY) -> Played:
    return Played(play).to(step)


def build_unmask_request(played: Played, number: int) -> UnmaskRequest:
    return collector.unmask_requests(played.terms, played.survivors, played.signatures, played.masked)[number]


def shown(played: Played, keys: list[HolderKeysMessage]) -> NeighbourKeys:
    """Returns these keys with a list that fits them."""
    listed = signed.key_list(played.terms, {0: played.keys[0]} | {message.holder: message for message in keys})
    return NeighbourKeys(keys=keys, key_list=listed)


def with_keys(change: Callable[[list[HolderKeysMessage]], list[HolderKeysMessage]]) -> tuple[Played, NeighbourKeys]:
    played = at(1)
    return played, shown(played, change(collector.neighbour_keys(played.terms, played.keys)[0].keys))


def test_honest_keys_are_taken() -> None:
    played, keys = with_keys(list)
    assert len(holder.share_secrets(played.states[0], keys)[1].shares) == COUNT - 1


def own_keys_for_another(keys: list[HolderKeysMessage]) -> list[HolderKeysMessage]:
    mine = key_agreement.Secrets(bytes(32), PLAY.aggregation.digest)
    made = {
        "channel_key": Hash(key_agreement.export_public_key(mine.channel)),
        "mask_key": Hash(key_agreement.export_public_key(mine.mask)),
    }
    return [keys[0].model_copy(update=made), *keys[1:]]


def exchanged(keys: list[HolderKeysMessage]) -> list[HolderKeysMessage]:
    first, second, *rest = keys
    return [
        first.model_copy(update={"holder": second.holder}),
        second.model_copy(update={"holder": first.holder}),
        *rest,
    ]


def of_another_round(keys: list[HolderKeysMessage]) -> list[HolderKeysMessage]:
    other = AggregationPlay(COUNT, 20, 100, 1, 3, seed=5)
    other.aggregation = replace(PLAY.aggregation, round=1)
    old = Played(other).to(1).keys
    return [old[keys[0].holder], *keys[1:]]


def of_other_parameters(keys: list[HolderKeysMessage]) -> list[HolderKeysMessage]:
    other = AggregationPlay(COUNT, 20, 100, 1, 3, seed=5)
    other.aggregation = replace(PLAY.aggregation, start=Hash(bytes(32)))
    return [Played(other).to(1).keys[keys[0].holder], *keys[1:]]


@pytest.mark.parametrize("lie", [own_keys_for_another, exchanged, of_another_round, of_other_parameters])
def test_keys_that_the_wallet_did_not_sign_for_this_round_are_refused(
    lie: Callable[[list[HolderKeysMessage]], list[HolderKeysMessage]],
) -> None:
    played, keys = with_keys(lie)
    with pytest.raises(Refused, match="signed by"):
        holder.share_secrets(played.states[0], keys)


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (lambda keys: [*keys, keys[0]], "named twice"),
        (lambda keys: keys[:2], "are needed"),
        (lambda keys: [keys[0].model_copy(update={"holder": 0}), *keys[1:]], "not a neighbour"),
        (lambda keys: [keys[0].model_copy(update={"holder": 100}), *keys[1:]], "not a neighbour"),
    ],
)
def test_a_list_of_keys_that_is_not_the_neighbours_is_refused(
    lie: Callable[..., list[HolderKeysMessage]], why: str
) -> None:
    played, keys = with_keys(lie)
    with pytest.raises(Refused, match=why):
        holder.share_secrets(played.states[0], keys)


def test_a_holder_that_is_no_neighbour_in_the_graph_is_refused() -> None:
    played = at(1, SPARSE)
    keys = collector.neighbour_keys(played.terms, played.keys)[0].keys
    far = next(number for number in range(1, 120) if number not in played.terms.points[0])
    with pytest.raises(Refused, match="not a neighbour"):
        holder.share_secrets(played.states[0], shown(played, [*keys, played.keys[far]]))


def test_a_holder_that_reflects_the_key_of_another_is_refused() -> None:
    played = at(1)
    copied = signed_keys(1, channel_key=played.keys[0].channel_key)
    keys = [copied if message.holder == 1 else message for message in played.keys.values() if message.holder]
    with pytest.raises(Refused, match="two of the keys are the same"):
        holder.share_secrets(played.states[0], shown(played, keys))
    with pytest.raises(Refused, match="another's"):
        collector.admit_keys(played.terms, DOMAIN, {0: played.keys[0]}, copied)


def signed_keys(number: int, play: AggregationPlay = PLAY, **changes: Hash) -> HolderKeysMessage:
    """Returns keys that the holder's own wallet signed, and that do not follow from its secrets."""
    message = holder.advertise_keys(play.seat(number))[1].model_copy(update=changes)
    digest = signing.digest_struct(DOMAIN, signed.holder_keys(play.aggregation, message))
    return message.model_copy(update={"signature": play.seat(number).sign(digest)})


def point_of_order_two_added(key: bytes) -> Hash:
    """Returns the key of the same point plus (0, 0): u becomes 1 / u, and every X25519 secret stays the same."""
    return Hash(pow(int.from_bytes(key, "little"), -1, PRIME).to_bytes(32, "little"))


def high_bit_set(key: bytes) -> Hash:
    """Returns the key with the bit that X25519 ignores."""
    return Hash(key[:31] + bytes([key[31] | 0x80]))


@pytest.mark.parametrize("equivalent", [point_of_order_two_added, high_bit_set])
@pytest.mark.parametrize(("count", "corrupt", "dropped"), [(5, 2, 0), (8, 4, 0), (8, 3, 2), (5, 1, 1)])
def test_equivalents_of_honest_keys_cancel_no_mask(
    count: int, corrupt: int, dropped: int, equivalent: Callable[[bytes], Hash]
) -> None:
    """A lying service shows its colluders to a victim, of the lowest number, under keys that give honest holders'
    secrets. Were masks of the secrets alone, the victim's own mask would be the last one on its vector."""
    play = AggregationPlay(count, 20, 100, corrupt, dropped, seed=7)
    played = Played(play).to(1)
    private = play.seat(0).secrets.mask
    colluders, honest = range(count - corrupt, count), range(1, count - corrupt)
    lies = {}
    for colluder, other in zip(colluders, honest, strict=False):
        false = {
            "mask_key": equivalent(played.keys[other].mask_key),
            "channel_key": equivalent(played.keys[other].channel_key),
        }
        assert agree_secret(private, false["mask_key"]) == agree_secret(private, played.keys[other].mask_key)
        mine, theirs = (0, played.keys[0].mask_key), (other, played.keys[other].mask_key)
        assert pair_mask(private, mine, (colluder, false["mask_key"]), play.aggregation.digest) != pair_mask(
            private, mine, theirs, play.aggregation.digest
        )
        lies[colluder] = signed_keys(colluder, play, **false)
    neighbours = [lies.get(number, played.keys[number]) for number in range(1, count)]
    if equivalent is high_bit_set:
        with pytest.raises(Refused, match="one encoding"):
            holder.share_secrets(played.states[0], shown(played, neighbours))
        return
    state, _ = holder.share_secrets(played.states[0], shown(played, neighbours))
    played.share()
    played.states[0] = state
    played.sharers, lists = collector.shares_for_holders(played.terms, played.shares)
    _, message, vector = holder.mask_integers(state, lists[0], play.integers[0])
    bare = play.aggregation.ring.read(vector, play.size).copy()
    add_masks(bare, [], [key_agreement.self_mask(play.seat(0).secrets.self_seed, play.aggregation.digest)])
    for colluder in colluders:  # the service may take off the masks of colluders, by their own secrets
        theirs = (colluder, lies.get(colluder, played.keys[colluder]).mask_key)
        key = pair_mask(play.seat(colluder).secrets.mask, theirs, (0, played.keys[0].mask_key), play.aggregation.digest)
        add_masks(bare, [], [key])
    assert (np.abs(play.aggregation.ring.integers(bare)) > 100).mean() > 0.9
    with pytest.raises(Refused, match="signed by"):  # nor does the requester get a sum of two views
        collector.admit_masked(played.terms, DOMAIN, played.key_list, played.sharers, message, vector)


def test_two_views_of_one_holders_keys_give_no_sum() -> None:
    """A colluder shows other keys to one holder: the others do not unmask its vector, nor it theirs."""
    played = at(1)
    other = signed_keys(COUNT - 1, channel_key=Hash(key_agreement.export_public_key(key_agreement.Secrets(
        b"x" * 32, PLAY.aggregation.digest).channel)))  # fmt: skip
    honest = collector.neighbour_keys(played.terms, played.keys)
    keys = [other if message.holder == COUNT - 1 else message for message in honest[0].keys]
    assert holder.share_secrets(played.states[0], honest[0])[1].shares
    with pytest.raises(Refused, match="holder 8's keys differ from the list"):
        holder.share_secrets(played.states[0], NeighbourKeys(keys=keys, key_list=honest[0].key_list))
    victim, _ = holder.share_secrets(played.states[0], shown(played, keys))
    played.share()
    played.states[0] = victim
    played.sharers, lists = collector.shares_for_holders(played.terms, played.shares)
    for number in range(COUNT):
        played.states[number], played.masked[number], _ = holder.mask_integers(
            played.states[number], lists[number], PLAY.integers[number]
        )
    played.sign()
    for number in range(COUNT):
        with pytest.raises(Refused, match="signed by"):
            holder.reveal_mask_shares(played.states[number], build_unmask_request(played, number))


@pytest.mark.parametrize("length", [0, 32, 32 * COUNT - 1, 32 * COUNT + 32])
def test_a_list_of_keys_of_another_length_is_refused(length: int) -> None:
    played, keys = with_keys(list)
    with pytest.raises(Refused, match="a list of 9 holders' keys does not have"):
        holder.share_secrets(played.states[0], keys.model_copy(update={"key_list": bytes(length)}))


def test_a_neighbour_that_the_list_names_and_nobody_shows_is_refused() -> None:
    played, keys = with_keys(list)
    with pytest.raises(Refused, match="keys differ from the list"):
        holder.share_secrets(played.states[0], NeighbourKeys(keys=keys.keys[1:], key_list=keys.key_list))


@pytest.mark.parametrize("key", [bytes(31) + b"\x80", (PRIME + 9).to_bytes(32, "little"), b"\xff" * 32])
def test_a_key_in_another_encoding_is_refused(key: bytes) -> None:
    with pytest.raises(Refused, match="one encoding"):
        collector.admit_keys(PLAY.aggregation, DOMAIN, {}, signed_keys(0, mask_key=Hash(key)))


@pytest.mark.parametrize("point", sorted(key_agreement.LOW_ORDER))
def test_a_key_of_low_order_is_refused(point: int) -> None:
    """Just those: the double of each is another of them (RFC 7748, section 4), and OpenSSL agrees with none."""
    key = Hash(point.to_bytes(32, "little"))
    with pytest.raises(Refused, match="low order"):
        collector.admit_keys(PLAY.aggregation, DOMAIN, {}, signed_keys(0, mask_key=key))
    with pytest.raises(Refused, match="low order"):
        key_agreement.agree_secret(X25519PrivateKey.generate(), key)
    below = 4 * point * (point * point + 486662 * point + 1) % PRIME
    assert not below or (point * point - 1) ** 2 * pow(below, -1, PRIME) % PRIME in key_agreement.LOW_ORDER


def test_keys_are_taken_once_and_from_their_owner() -> None:
    played = at(1)
    with pytest.raises(Refused, match="already"):
        collector.admit_keys(played.terms, DOMAIN, played.keys, played.keys[0])
    with pytest.raises(Refused, match="signed by"):
        collector.admit_keys(played.terms, DOMAIN, {}, played.keys[0].model_copy(update={"holder": 1}))


def test_a_requester_that_leaves_out_a_sharing_neighbour_is_refused() -> None:
    """Else it could have two groups mask apart, and learn the sum of each."""
    played = at(2)
    _, lists = collector.shares_for_holders(played.terms, played.shares)
    with pytest.raises(Refused, match="one from each neighbour"):
        holder.mask_integers(
            played.states[0], lists[0].model_copy(update={"shares": lists[0].shares[1:]}), PLAY.integers[0]
        )


def test_two_views_of_the_sharers_end_before_anything_is_unmasked() -> None:
    """Holder 0 gets sharers without 8, and masks without it; the others reveal no share of 0 then."""
    played = at(2)
    sharers, lists = collector.shares_for_holders(played.terms, played.shares)
    view = played.terms.packed(range(COUNT - 1))
    for number in range(COUNT):
        given = lists[number]
        if number == 0:
            given = SharesForHolder(sharers=view, shares=[one for one in given.shares if one.sender != COUNT - 1])
        played.states[number], message, _ = holder.mask_integers(played.states[number], given, PLAY.integers[number])
        played.masked[number] = message
    played.survivors = played.terms.packed(range(COUNT))
    with pytest.raises(Refused, match="never shared"):
        holder.sign_survivors(played.states[0], SurvivorsProposed(survivors=played.survivors))
    for number in range(1, COUNT):
        played.states[number], played.signatures[number] = holder.sign_survivors(
            played.states[number], SurvivorsProposed(survivors=played.survivors)
        )
    assert sharers != view
    for number in range(1, COUNT):
        with pytest.raises(Refused, match="signed by"):
            holder.reveal_mask_shares(played.states[number], build_unmask_request(played, number))


@pytest.mark.parametrize(
    ("members", "why"),
    [
        (range(1, COUNT), "own vector is not in the sum"),
        (range(4), "a sum is of at least 6"),
        ((0,), "a sum is of at least 6"),
    ],
)
def test_a_set_of_survivors_that_is_unsafe_is_not_signed(members: range, why: str) -> None:
    played = at(3)
    with pytest.raises(Refused, match=why):
        holder.sign_survivors(played.states[0], SurvivorsProposed(survivors=played.terms.packed(members)))


@pytest.mark.parametrize("packed", [b"\xff\xff", b"\xff", b"\xff\x80\x00"])
def test_a_set_of_another_number_of_holders_is_refused(packed: bytes) -> None:
    with pytest.raises(Refused, match="a set of 9 holders has 9 bits"):
        holder.sign_survivors(at(3).states[0], SurvivorsProposed(survivors=packed))


@FULL
def test_a_survivor_with_too_few_neighbours_is_refused() -> None:
    played = at(3, SPARSE)
    others = list(played.terms.points[0])
    gone = set(others[: len(others) - played.terms.plan.threshold + 1])
    assert len(gone) <= 30
    with pytest.raises(Refused, match="neighbours that stayed, and needs"):
        holder.sign_survivors(
            played.states[next(iter(set(range(120)) - gone))],
            SurvivorsProposed(survivors=played.terms.packed(set(range(120)) - gone)),
        )


def test_no_holder_signs_two_sets() -> None:
    played = at(4)
    with pytest.raises(Refused, match="at step 4 of the aggregation, not at 3"):
        holder.sign_survivors(played.states[0], SurvivorsProposed(survivors=played.terms.packed(range(8))))


def test_two_sets_of_survivors_for_two_groups_unmask_nothing() -> None:
    """The groups are as large as they can be: every honest holder signs one set, and the colluder both."""
    played = at(3)
    views = {number: played.terms.packed(range(8) if number < 4 else range(COUNT)) for number in range(COUNT)}
    for number in range(COUNT - 1):
        told_set = SurvivorsProposed(survivors=views[number])
        played.states[number], played.signatures[number] = holder.sign_survivors(played.states[number], told_set)
    colluder = COUNT - 1
    for number in range(colluder):
        _, both = holder.sign_survivors(played.states[colluder], SurvivorsProposed(survivors=views[COUNT - 1]))
        signatures = [m for n, m in played.signatures.items() if views[n] == views[number]] + [both]
        request = UnmaskRequest(signatures=signatures, masked=[])
        with pytest.raises(Refused, match="signed the survivors, and 6 must have"):
            holder.reveal_mask_shares(played.states[number], request)


def test_signatures_of_another_set_are_not_counted() -> None:
    played = at(3)
    for number in range(COUNT):
        view = played.terms.packed(range(8) if number < 4 else range(COUNT))
        played.states[number], played.signatures[number] = holder.sign_survivors(
            played.states[number], SurvivorsProposed(survivors=view)
        )
    played.survivors = played.terms.packed(range(8))
    with pytest.raises(Refused, match="signed by"):
        holder.reveal_mask_shares(
            played.states[0], UnmaskRequest(signatures=list(played.signatures.values()), masked=[])
        )


def test_a_holder_outside_the_set_signs_it_for_nobody() -> None:
    """A colluder would sign anything: only those whose vectors are in the sum count for the quorum."""
    played = at(3)
    played.survivors = played.terms.packed(range(8))
    for number in range(8):
        told_set = SurvivorsProposed(survivors=played.survivors)
        played.states[number], played.signatures[number] = holder.sign_survivors(played.states[number], told_set)
    state = played.states[0]
    digest = signed.survivors_digest(played.terms, DOMAIN, state.sharers, played.survivors)
    outside = SurvivorsSigned(holder=8, signature=PLAY.seat(8).sign(digest))
    request = build_unmask_request(played, 0)
    wrong = UnmaskRequest(signatures=[*request.signatures[1:], outside], masked=request.masked)
    with pytest.raises(Refused, match="holder 8 signed, and is not among the survivors"):
        holder.reveal_mask_shares(state, wrong)
    assert holder.reveal_mask_shares(state, request)[1].self_shares


@pytest.mark.parametrize("change", ["twice", "stranger", "too few", "unsigned vector", "vector left out"])
def test_an_unmask_request_without_its_evidence_is_refused(change: str) -> None:
    played = at(4)
    asked = build_unmask_request(played, 0)
    signatures, vectors = list(asked.signatures), list(asked.masked)
    if change == "twice":
        signatures[1] = signatures[0]
    if change == "stranger":
        signatures[0] = signatures[0].model_copy(update={"holder": 100})
    if change == "too few":
        signatures = signatures[1:]
    if change == "unsigned vector":
        vectors[0] = vectors[0].model_copy(update={"vector": Hash(bytes(32))})
    if change == "vector left out":
        vectors = vectors[1:]
    with pytest.raises(Refused):
        holder.reveal_mask_shares(played.states[0], UnmaskRequest(signatures=signatures, masked=vectors))
    assert holder.reveal_mask_shares(played.states[0], asked)[1].self_shares


def test_a_holder_reveals_one_share_of_each_neighbour_and_answers_once() -> None:
    play = AggregationPlay(COUNT, 20, 100, 1, 3, drops={2: 3, 5: 4})
    played = Played(play).to(STEPS)
    for state, answer in ((played.states[number], answer) for number, answer in played.answers.items()):
        own, pair = ({share.owner for share in part} for part in (answer.self_shares, answer.mask_shares))
        assert pair == {2}
        assert own == set(range(COUNT)) - {2, answer.holder}
        with pytest.raises(Refused, match="at step 5 of the aggregation, not at 4"):
            holder.reveal_mask_shares(state, UnmaskRequest(signatures=[], masked=[]))


def test_the_vector_of_one_called_dropped_stays_masked() -> None:
    """The requester has holder 2's vector and calls it dropped: with its pairwise masks off, its own mask is left."""
    played = at(3)
    vector = holder.mask_integers(
        at(2).states[2], collector.shares_for_holders(played.terms, played.shares)[1][2], PLAY.integers[2]
    )[2]
    played.masked.pop(2)
    played.sign()
    played.unmask()
    seed = secret_sharing.combine_shares({
        played.terms.points[2][answer.holder]: share.share
        for answer in list(played.answers.values())[: played.terms.plan.threshold]
        for share in answer.mask_shares
    })  # fmt: skip
    private = key_agreement.mask_key(seed, played.terms.digest)
    bare = played.terms.ring.read(vector, PLAY.size).copy()
    mine = 2, played.keys[2].mask_key
    pairs = {other: pair_mask(private, mine, (other, played.keys[other].mask_key), played.terms.digest)
             for other in played.terms.points[2]}  # fmt: skip
    add_masks(bare, [key for other, key in pairs.items() if other < 2], [k for other, k in pairs.items() if other > 2])
    assert (np.abs(played.terms.ring.integers(bare)) > 100).mean() > 0.9
    add_masks(bare, [], [key_agreement.self_mask(PLAY.seat(2).secrets.self_seed, played.terms.digest)])
    assert (played.terms.ring.integers(bare) == PLAY.integers[2]).all()
    assert not [share for answer in played.answers.values() for share in answer.self_shares if share.owner == 2]
