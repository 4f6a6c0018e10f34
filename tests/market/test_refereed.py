"""A tournament of answers: an honest answer stands whatever silent colluders do, and each hearing ends something."""

from itertools import product
from random import Random

import pytest

from gradmarket.market.features.disputes.refereed import (
    Heard,
    choose_sides,
    find_heard_faults,
    find_standing_root,
    list_standing,
)
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import voting
from gradmarket.market.terms import Address, Digest, Plan, ReplicaId
from tests.features.test_served_fields import SPEC

RIGHT, WRONG, OTHER = (Digest(f"blake3:{letter * 64}") for letter in "123")
WORKERS = [Address(f"0x{number:040x}") for number in range(5)]
ANN, BEN, CEM = WORKERS[:3]


def play(answers: dict[Address, Digest], honest: set[Address], draw: Random) -> list[Heard]:
    """Honest sides never lose; of others each may win against another, or both lose, or none is decided."""
    heard = list[Heard]()
    while (sides := choose_sides(answers, heard)) is not None:
        liars = [side for side in sides if side not in honest]
        wrong = liars if len(liars) == 1 else draw.choice([[], liars, liars[:1], liars[1:]])
        heard.append(Heard(sides, wrong))
    return heard


@pytest.mark.parametrize("seed", range(20))
def test_one_honest_worker_has_its_answer_stand_against_any_colluders(seed: int) -> None:
    draw = Random(seed)
    answers = {worker: draw.choice([RIGHT, WRONG, OTHER]) for worker in WORKERS} | {ANN: RIGHT}
    heard = play(answers, {ANN}, draw)  # others with the right answer may still fall silent
    assert find_standing_root(answers, heard) == RIGHT
    assert list(find_heard_faults(answers, heard)) == []
    assert len(heard) <= len(WORKERS) * (len(WORKERS) - 1) // 2


def test_undecided_hearings_hear_each_pair_once_and_leave_every_answer_standing() -> None:
    answers = {ANN: RIGHT, BEN: WRONG, CEM: RIGHT}
    heard = [Heard((ANN, BEN), (), (RIGHT, WRONG)), Heard((BEN, CEM), ())]
    assert list(find_heard_faults(answers, heard)) == []
    assert choose_sides(answers, heard) is None
    assert find_standing_root(answers, heard) is None
    assert list_standing(answers, heard) == [ANN, BEN, CEM]


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        ([Heard((ANN, CEM), [CEM])], "did not answer it differently"),
        ([Heard((ANN, WORKERS[4]), [ANN])], "did not answer it differently"),
        ([Heard((ANN, BEN), [BEN]), Heard((BEN, CEM), [CEM])], "one of them was out"),
        ([Heard((ANN, BEN), []), Heard((BEN, ANN), [ANN])], "heard before"),
        ([Heard((ANN, BEN), [CEM])], "another loser"),
        ([Heard((ANN, BEN), [ANN], (OTHER, WRONG))], "other answers than they gave"),
        ([Heard((ANN, BEN), [ANN], (WRONG, RIGHT))], "other answers than they gave"),
    ],
)
def test_hearings_that_are_none_of_the_tasks_are_found(heard: list[Heard], said: str) -> None:
    answers = {ANN: RIGHT, BEN: WRONG, CEM: RIGHT}
    assert any(said in fault for fault in find_heard_faults(answers, heard))


@pytest.mark.parametrize(("refereed", "referred"), product([False, True], repeat=2))
def test_a_referee_hears_a_split_before_others_are_asked_and_no_quorum(refereed: bool, referred: bool) -> None:
    plan = Plan(2, 2, 4, referred=referred)
    groups = [frozenset({ReplicaId("a")}), frozenset({ReplicaId("b")})]
    judged = voting.judge_ballots(groups, 2, plan, refereed)
    assert isinstance(judged, voting.Hearing) == refereed
    assert isinstance(voting.judge_ballots([groups[0] | groups[1]], 2, plan, refereed), voting.Quorum)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}, "one answer"),
        ({"replication": {"name": "audited", "audit": 0.1}}, "one answer"),
        ({"verifier": {"name": "tolerance"}, "audit": {"probability": 0.1},
          "replication": {"name": "fixed", "replicas": 3, "max_replicas": 3}}, "compares bits"),
        ({"step": {"kind": "local", "rows": 4, "steps": 4, "window": 1, "optimizer": {"name": "sgd", "lr": 0.1}},
          "replication": {"name": "fixed"}, "audit": {"probability": 0.1}}, "step.window"),
    ],
)  # fmt: skip
def test_a_job_that_nobody_can_trace_has_no_referee(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match="disputes") as refused:
        JobSpec.model_validate(SPEC | changes | {"disputes": "referee"})
    assert said in str(refused.value)


def test_a_job_without_a_referee_has_the_digest_that_it_had() -> None:
    spec = JobSpec.model_validate(SPEC)
    assert "disputes" not in spec.model_dump(mode="json")
    assert spec == JobSpec.model_validate(SPEC | {"disputes": "votes"})
    refereed = JobSpec.model_validate(SPEC | {"disputes": "referee", "replication": {"name": "fixed"}})
    assert refereed.model_dump(mode="json")["disputes"] == "referee"
