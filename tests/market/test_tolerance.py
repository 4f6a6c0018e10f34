"""Near ballots agree, chains do not, and a threshold rests on enough honest runs or does not exist."""

import re
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import JobRefused
from gradmarket.market.features.tolerance import LEAST, RUNS, SHARE, Evidence
from gradmarket.market.gradient.projection import Sketch, sketch_tensors
from gradmarket.market.rules import voting
from gradmarket.market.rules.verifiers import load_verifier, tolerance
from gradmarket.market.rules.verifiers.tolerance import SketchBallot, compute_deviations, groups
from gradmarket.market.terms import CalibrationState, Hash, Plan, ReplicaId

SEED = Hash(b"w" * 32)
ALLOWED = {("cpu", "cpu"): {"big": 1e-3, "small": 1e-3}, ("cpu", "gpu"): {"big": 2e-3, "small": 2e-3}}


def gradient(big: float = 0.0, small: float = 0.0, seed: int = 0) -> Sketch:
    """The sketch of two tensors, off in a random direction by these shares of their lengths."""
    generator = np.random.default_rng(1)
    honest = {"big": generator.standard_normal(10_000), "small": 0.01 * generator.standard_normal(30)}
    other = np.random.default_rng(100 + seed)
    for name, share in (("big", big), ("small", small)):
        direction = other.standard_normal(honest[name].size)
        honest[name] += share * direction * np.linalg.norm(honest[name]) / np.linalg.norm(direction)
    return sketch_tensors({name: values.astype(np.float32) for name, values in honest.items()}, SEED)


def ballots(*cast: Sketch | None, kind: str = "cpu") -> dict[ReplicaId, SketchBallot | None]:
    return {ReplicaId(f"r{i}"): None if found is None else SketchBallot(kind, found) for i, found in enumerate(cast)}


def sizes(*cast: Sketch | None) -> list[int]:
    return [len(group) for group in groups(ballots(*cast), ALLOWED)]


def test_honest_noise_agrees_and_a_lie_does_not() -> None:
    assert sizes(gradient(), gradient(1e-4), gradient(1e-4, 1e-4, seed=3)) == [3]
    assert sizes(gradient(), gradient(1e-4), gradient(1e-2)) == [2, 1]


def test_one_small_tensor_that_was_tampered_with_is_seen() -> None:
    """It is 1/2000 of the gradient's length: a threshold on the whole would pass it."""
    assert sizes(gradient(), gradient(), gradient(small=1e-2)) == [2, 1]


def test_a_chain_is_not_a_group() -> None:
    """A near B near C near D, each step allowed: only a medoid's neighbours agree."""
    steps = [np.float32(1 + 0.9e-3 * k) for k in range(4)]
    base = gradient()
    chain = [{name: numbers * step for name, numbers in base.items()} for step in steps]
    assert sizes(*chain) == [3, 1]
    assert sizes(chain[0], chain[3]) == [1, 1]


def test_two_that_stretch_the_middle_do_not_pull_a_lie_in() -> None:
    plan = Plan(3, 2, 5)
    base = gradient()
    lie = {name: numbers * np.float32(1 + 2.5e-3) for name, numbers in base.items()}
    middle = {name: numbers * np.float32(1 + 1.2e-3) for name, numbers in base.items()}
    cast = ballots(base, gradient(1e-5), middle, lie)
    judged = voting.judge_ballots(groups(cast, ALLOWED), 4, plan)
    assert isinstance(judged, voting.Another), "two of four are no majority"


def test_a_pair_that_nobody_calibrated_agrees_only_where_nothing_differs() -> None:
    cast = {ReplicaId("a"): SketchBallot("cpu", gradient()), ReplicaId("b"): SketchBallot("tpu", gradient(1e-7))}
    assert [len(group) for group in groups(cast, ALLOWED)] == [1, 1]
    cast[ReplicaId("b")] = SketchBallot("tpu", gradient())
    assert [len(group) for group in groups(cast, ALLOWED)] == [2]


def test_two_classes_have_their_own_threshold_in_either_order() -> None:
    for one, other in (("cpu", "gpu"), ("gpu", "cpu")):
        cast = {
            ReplicaId("a"): SketchBallot(one, gradient()),
            ReplicaId("b"): SketchBallot(other, gradient(1.3e-3, 1.3e-3)),
        }
        assert [len(group) for group in groups(cast, ALLOWED)] == [2]
    assert sizes(gradient(), gradient(1.6e-3, 1.6e-3)) == [1, 1]


def test_a_ballot_without_tensors_or_with_others_is_in_no_honest_group() -> None:
    other = {**gradient(), "more": gradient()["big"]}
    assert sizes(gradient(), gradient(), None, other) == [2, 1]


def test_not_a_number_agrees_with_itself_alone() -> None:
    broken = {"big": np.full(64, np.nan, np.float32), "small": gradient()["small"]}
    assert sizes(gradient(), broken, broken) == [2, 1]
    assert set(compute_deviations(broken, broken).values()) == {0.0}
    assert compute_deviations(broken, gradient())["big"] == np.inf


def test_a_tensor_of_nothing_but_rounding_does_not_part_honest_workers() -> None:
    noise = [np.random.default_rng(k).standard_normal(64).astype(np.float32) * 1e-9 for k in (1, 2)]
    one, other = ({**gradient(), "more": gradient(seed=1)["small"], "bias": each} for each in noise)
    assert compute_deviations(one, other)["bias"] < 1e-3


def test_ids_and_arrival_do_not_matter() -> None:
    cast = [gradient(), gradient(8e-4, seed=1), gradient(8e-4, seed=2), gradient(1e-2, seed=3), None]
    found = set()
    for order in permutations(range(5)):
        shuffled = [cast[index] for index in order]
        named = groups(ballots(*shuffled), ALLOWED)
        found.add(tuple(frozenset(order[int(id_[1:])] for id_ in group) for group in named))
    assert len(found) == 1


@given(st.lists(st.sampled_from([0.0, 5e-4, 9e-4, 1e-2]), min_size=1, max_size=6))
def test_groups_part_the_revealed_and_no_two_members_are_over_twice_the_threshold(shares: list[float]) -> None:
    cast = [gradient(share, share, seed=index) for index, share in enumerate(shares)]
    found = groups(ballots(*cast), ALLOWED)
    assert sorted(id_ for group in found for id_ in group) == sorted(ballots(*cast))
    for group in found:
        members = [cast[int(id_[1:])] for id_ in group]
        assert all(max(compute_deviations(a, b).values()) <= 2e-3 * 1.01 for a in members for b in members)


def evidence(deviation: float, runs: int = RUNS) -> Evidence:
    """Of honest runs of which the last deviates most."""
    generator = np.random.default_rng(5)
    found = Evidence(0, {})
    for value in [*(deviation * generator.uniform(0.1, 0.9, runs - 1)), deviation]:
        found = found.and_run({"big": float(value), "small": 1e-8})
    return found


def test_a_threshold_is_ten_times_the_largest_seen_with_its_evidence() -> None:
    found = evidence(4e-7)
    assert found.tau == pytest.approx({"big": 4e-6, "small": LEAST})
    assert found.runs == 59
    assert found.confidence >= 0.95
    assert found.state == CalibrationState.CALIBRATED


def test_too_few_runs_or_too_much_noise_give_no_threshold() -> None:
    assert evidence(1e-7, 58).state == CalibrationState.GATHERING
    for deviation in (5.1e-4, float("nan")):
        found = evidence(deviation)
        assert found.state == CalibrationState.REFUSED
        assert re.match(r"big: .* over 5e-03", found.excess)
    with pytest.raises(JobRefused, match="differ in their tensors"):
        evidence(1e-7).and_run({"big": 1e-7})


def test_the_required_runs_are_the_fewest_for_95_percent() -> None:
    assert 1 - SHARE**RUNS >= 0.95 > 1 - SHARE ** (RUNS - 1)


@given(st.floats(1e-9, 5e-4), st.floats(1, 2))
def test_more_noise_never_gives_a_smaller_threshold(deviation: float, factor: float) -> None:
    assert evidence(deviation * factor).tau["big"] >= evidence(deviation).tau["big"]


def test_the_verifiers_are_found_by_name() -> None:
    assert load_verifier("tolerance") is tolerance  # type: ignore[comparison-overlap]
