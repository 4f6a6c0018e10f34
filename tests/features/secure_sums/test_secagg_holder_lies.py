"""Holders that cheat in an aggregation: they can end a round, are named, and learn nothing."""

from dataclasses import replace

import numpy as np
import pytest

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import collector, dealing, holder, key_agreement, secret_sharing
from gradmarket.market.features.secure_sums.sum_messages import RevealedShare, UnmaskAnswer
from gradmarket.market.terms import Hash
from tests.kit.aggregation_play import DOMAIN, STEPS, AggregationPlay, Played

COUNT = 9
PLAY = AggregationPlay(COUNT, 20, 100, 1, 3, seed=5)


def at(step: int) -> Played:
    return Played(PLAY).to(step)


def test_colluders_below_the_threshold_cannot_put_a_secret_together() -> None:
    played = at(3)
    threshold = played.terms.plan.threshold
    shares = {played.terms.points[0][number]: played.states[number].shares[0][0] for number in range(1, threshold)}
    with_one_more = shares | {played.terms.points[0][threshold]: played.states[threshold].shares[0][0]}
    assert secret_sharing.combine_shares(with_one_more) == PLAY.seat(0).secrets.self_seed
    with pytest.raises(Refused, match="not of one secret"):
        secret_sharing.combine_shares(shares)


@pytest.mark.parametrize("what", ["twice", "left out", "another's name"])
def test_shares_that_are_not_one_for_each_neighbour_are_refused(what: str) -> None:
    played = at(2)
    sent = played.shares[0]
    shares = {
        "twice": [*sent.shares, sent.shares[0]],
        "left out": sent.shares[1:],
        "another's name": [sent.shares[0].model_copy(update={"sender": 3}), *sent.shares[1:]],
    }[what]
    with pytest.raises(Refused):
        collector.admit_shares(played.terms, played.keys, sent.model_copy(update={"shares": shares}))
    collector.admit_shares(played.terms, played.keys, sent)
    for nobody in (len(played.terms.holders), 10**9, -1):
        with pytest.raises(Refused, match="did not send its keys"):
            collector.admit_shares(played.terms, played.keys, sent.model_copy(update={"holder": nobody}))


def test_a_holder_that_seals_rubbish_for_a_few_is_worked_around() -> None:
    played = at(2)
    shares = played.shares[0].shares
    spoilt = [one.model_copy(update={"box": bytes(80)}) if one.receiver < 3 else one for one in shares]
    played.shares[0] = played.shares[0].model_copy(update={"shares": spoilt})
    played.mask()
    assert {number for number, message in played.masked.items() if message.broken} == {1, 2}
    played.sign()
    played.unmask()
    assert (played.sum() == played.plain()).all()


def test_a_requester_that_changes_a_mark_cannot_have_its_receiver_blamed() -> None:
    played = at(2)
    _, lists = collector.shares_for_holders(played.terms, played.shares)
    changed = lists[0].shares[0].model_copy(update={"self_mark": Hash(bytes(32))})
    message = holder.mask_integers(
        played.states[0], lists[0].model_copy(update={"shares": [changed, *lists[0].shares[1:]]}), PLAY.integers[0]
    )[1]
    assert message.broken == [changed.sender]


def test_a_holder_that_deals_shares_of_no_secret_is_named() -> None:
    played = at(1)
    keys = collector.neighbour_keys(played.terms, played.keys)
    lying = replace(PLAY.seat(0), secrets=key_agreement.Secrets(b"x" * 32, played.terms.digest))
    own, private = (0, played.keys[0].channel_key), PLAY.seat(0).secrets.channel
    channels = {
        n: key_agreement.share_channel(private, own, (n, m.channel_key), played.terms.digest)
        for n, m in played.keys.items()
        if n
    }
    wrong = dealing.deal_shares(played.terms, 0, lying.secrets, channels)
    for number in range(COUNT):
        played.states[number], played.shares[number] = holder.share_secrets(played.states[number], keys[number])
    played.shares[0] = played.shares[0].model_copy(update={"shares": wrong})
    played.mask()
    played.sign()
    played.unmask()
    with pytest.raises(Refused, match="holder 0 dealt shares that are not of its secret"):
        played.sum()


def test_a_wrong_length_and_another_vector_than_signed_are_refused() -> None:
    played = at(2)
    sharers, lists = collector.shares_for_holders(played.terms, played.shares)
    _, message, vector = holder.mask_integers(played.states[0], lists[0], PLAY.integers[0])
    for wrong, why in ((vector[4:], "has 80 bytes, not 76"), (bytes(80), "not the one that it signed")):
        with pytest.raises(Refused, match=why):
            collector.admit_masked(played.terms, DOMAIN, played.key_list, sharers, message, wrong)
    for integers, why in ((PLAY.integers[0][1:], "has 20 integers"), (np.full(20, 101), "not within 100")):
        with pytest.raises(Refused, match=why):
            holder.mask_integers(played.states[0], lists[0], integers)


def test_a_holder_that_reveals_another_share_is_refused_and_the_sum_comes_without_it() -> None:
    played = at(STEPS)
    answer = played.answers.pop(0)
    lie = RevealedShare(owner=answer.self_shares[0].owner, share=Hash(b"\1" * 32))
    for wrong in (
        answer.model_copy(update={"self_shares": [lie, *answer.self_shares[1:]]}),
        answer.model_copy(update={"self_shares": [], "mask_shares": answer.self_shares}),
        UnmaskAnswer(holder=0, self_shares=[lie.model_copy(update={"owner": 0})], mask_shares=[]),
    ):
        with pytest.raises(Refused, match="holder 0"):
            collector.admit_answer(played.terms, played.survivors, played.shares, wrong)
    assert (played.sum() == played.plain()).all()


def test_holders_that_are_named_twice_or_out_of_order_are_refused() -> None:
    names = PLAY.aggregation.holders
    for wrong in ((names[0], *names), tuple(reversed(names))):
        play = AggregationPlay(COUNT)
        play.aggregation = replace(PLAY.aggregation, holders=wrong)
        with pytest.raises(Refused, match="named once each, in ascending order"):
            play.seat(0)


def test_too_little_entropy_is_refused() -> None:
    with pytest.raises(Refused, match="entropy has 32 bytes, not 16"):
        holder.build_seat(PLAY.aggregation, DOMAIN, 0, bytes(16), PLAY.seat(0).sign)
