"""The vote: strict majority of committed and of R, in any order; and the failures without either."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.rules import voting
from gradmarket.market.rules.verifiers import exact
from gradmarket.market.rules.voting import Another, Inconclusive, Quorum, judge_ballots, upload_order
from gradmarket.market.terms import Digest, Hash, Plan, ReplicaId

A, B, C = Digest("blake3:" + "a" * 64), Digest("blake3:" + "b" * 64), Digest("blake3:" + "c" * 64)


def ballots(*roots: Digest | None) -> dict[ReplicaId, Digest | None]:
    return {ReplicaId(f"r{index}"): root for index, root in enumerate(roots)}


def verdict(*roots: Digest | None, replicas: int = 3, maximum: int = 5) -> voting.Judgement:
    return judge_ballots(exact.groups(ballots(*roots)), len(roots), Plan(replicas, replicas // 2 + 1, maximum))


def test_three_that_agree_are_a_quorum() -> None:
    assert verdict(A, A, A) == Quorum(frozenset({ReplicaId("r0"), ReplicaId("r1"), ReplicaId("r2")}))


def test_a_cheater_is_outvoted_and_is_not_in_the_quorum() -> None:
    assert verdict(A, B, A) == Quorum(frozenset({ReplicaId("r0"), ReplicaId("r2")}))


def test_two_stalls_of_three_do_not_make_the_third_answer_right() -> None:
    assert verdict(B, None, None) == Another(2)
    assert verdict(B) == Another(1)


def test_one_of_one_is_no_quorum_of_three() -> None:
    assert not isinstance(verdict(A, replicas=3), Quorum)
    assert isinstance(verdict(A, replicas=1, maximum=1), Quorum)


def test_three_answers_need_two_more_since_one_could_not_decide() -> None:
    assert verdict(A, B, C) == Another(2)
    assert isinstance(verdict(A, B, C, A), Another)
    assert verdict(A, B, C, A, A) == Quorum(frozenset({ReplicaId("r0"), ReplicaId("r3"), ReplicaId("r4")}))


def test_a_tie_within_the_maximum_is_split_and_at_the_maximum_inconclusive() -> None:
    assert verdict(A, A, B, B) == Another(1)
    assert verdict(A, A, B, B, C) == Inconclusive()
    assert verdict(A, A, B, B, maximum=4) == Inconclusive()


roots = st.lists(st.sampled_from([A, B, C, None]), min_size=1, max_size=7)


@given(roots, st.integers(1, 7))
def test_a_winner_has_both_majorities(cast: list[Digest | None], replicas: int) -> None:
    found = judge_ballots(exact.groups(ballots(*cast)), len(cast), Plan(replicas, replicas // 2 + 1, 7))
    if isinstance(found, Quorum):
        assert len(found.agreeing) >= replicas // 2 + 1
        assert 2 * len(found.agreeing) > len(cast)
        assert len({cast[int(id_[1:])] for id_ in found.agreeing}) == 1


@given(roots, st.randoms(use_true_random=False))
def test_order_and_ids_do_not_matter(cast: list[Digest | None], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(cast)
    random.shuffle(shuffled)
    before, after = verdict(*cast, maximum=7), verdict(*shuffled, maximum=7)
    assert type(before) is type(after)
    if isinstance(before, Quorum) and isinstance(after, Quorum):
        assert cast[int(min(before.agreeing)[1:])] == shuffled[int(min(after.agreeing)[1:])]
    else:
        assert before == after


@given(st.integers(1, 9), st.integers(1, 12), st.data())
def test_the_next_wave_is_the_smallest_that_could_decide(replicas: int, maximum: int, data: st.DataObject) -> None:
    committed = data.draw(st.integers(0, maximum))
    best = data.draw(st.integers(0, committed))
    quorum = replicas // 2 + 1
    more = Plan(replicas, quorum, maximum).next_wave(committed, best)

    def decides(extra: int) -> bool:
        return best + extra >= quorum and 2 * (best + extra) > committed + extra

    possible = [extra for extra in range(1, maximum - committed + 1) if decides(extra)]
    assert more == (possible[0] if possible else 0)


def test_the_uploader_is_drawn_by_the_seed_among_addresses_not_by_id() -> None:
    agreeing = {ReplicaId(f"r{i}"): f"0x{i:040x}" for i in range(8)}
    orders = {tuple(agreeing[id_] for id_ in upload_order(Hash(bytes([seed]) * 32), agreeing)) for seed in range(20)}
    assert len(orders) > 15
    renamed = {ReplicaId(f"other{i}"): address for i, address in enumerate(agreeing.values())}
    seed = Hash(b"s" * 32)
    assert [agreeing[i] for i in upload_order(seed, agreeing)] == [renamed[i] for i in upload_order(seed, renamed)]


def test_exact_groups_never_chain() -> None:
    groups = exact.groups(ballots(A, B, A, None, C))
    assert [len(group) for group in groups] == [2, 1, 1]
    assert not any(one & other for one, other in itertools.combinations(groups, 2))
