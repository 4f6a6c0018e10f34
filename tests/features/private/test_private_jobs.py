"""Jobs whose rows stay with their holders: draws, refusals, and the weights of answers."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradmarket.market.errors import JobRefused
from gradmarket.market.features.private.holder_budget import HolderBudget
from gradmarket.market.features.private.holder_rows import compute_row_scales, count_weighed_rows
from gradmarket.market.features.private.row_budget import count_affordable_uses
from gradmarket.market.job import JobSpec
from gradmarket.market.signing import address_of
from gradmarket.market.step import RowPrivacy
from gradmarket.market.terms import Digest, JobState, ReplicaState
from gradmarket.market.wire.poll import Answer, FaultKind, LeaseReturn, StepFault
from graphdoc import tensors
from requester.exchange import payload_upload
from requester.features.audits.audit_tables import Audit
from requester.features.private import holder_rows
from requester.moves import named_blobs, replay
from requester.stages import collect
from requester.store import newcomers, visibility
from requester.store.tables import Job, Round, Task, UnneededBlob
from tests.kit.behaviour import HONEST, IDLE, WITHHOLDER, Behaviour, filled, scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture, first_parameters
from tests.requester.market_workers import SimWorker, key_of, wants

INPUTS = {"x": {"dtype": "float32", "shape": [4]}, "y": {"dtype": "int64", "classes": 2}}


def listed(count: int, **more: Any) -> dict[str, Any]:
    """Returns the data of a private job whose holders are the first `count` workers of the floor."""
    return {"inputs": INPUTS, "holders": [address_of(key_of(f"worker {n}")) for n in range(count)], **more}


def join(market: MarketFixture, worker: SimWorker, rows: int | None = None) -> SimWorker:
    with market.context.begin() as work:
        holder_rows.record_holder(work, market.job, worker.address, rows, market.clock())
    return worker


def holder(market: MarketFixture, behaviour: Behaviour = HONEST, rows: int | None = None) -> SimWorker:
    return join(market, market.worker(behaviour), rows)


def answered_by(market: MarketFixture, number: int) -> list[str]:
    """The workers whose answers a round has taken, sorted."""
    named = {replica.id: replica.worker for replica in market.replicas()}
    return sorted(named[task.uploader] for task in market.tasks() if task.round == number and task.payload)


@FULL
def test_each_holder_answers_once_in_a_round(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(3), rounds=3, tasks_per_round=3)
    three = [holder(market, rows=10) for _ in range(3)]
    market.play()
    assert market.state() == JobState.FINISHED
    for number in range(3):
        assert answered_by(market, number) == sorted(one.address for one in three)
    assert market.earned() == {one.address: 3 * PRICE for one in three}
    check_books(market)


@FULL
def test_a_round_takes_some_of_the_holders(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(5), rounds=8, tasks_per_round=2)
    five = [holder(market) for _ in range(5)]
    market.play()
    assert market.state() == JobState.FINISHED
    rounds = [answered_by(market, number) for number in range(8)]
    assert all(len(set(workers)) == 2 for workers in rounds)
    assert len({worker for workers in rounds for worker in workers}) > 2
    assert {worker for workers in rounds for worker in workers} <= {one.address for one in five}


def test_workers_without_rows_get_no_task_and_no_reservation(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(1), rounds=2)
    honest = holder(market)
    strangers = [market.worker(reserved=0) for _ in range(5)] + [market.worker()]
    with market.reading() as reader:
        job = reader.get_one(Job, market.job)
        covered = newcomers.next_covered(reader, job, market.clock())
    assert not {one.address for one in strangers} & set(covered)
    market.play()
    assert market.state() == JobState.FINISHED
    assert set(market.earned()) == {honest.address}
    assert {replica.worker for replica in market.replicas()} == {honest.address}


def test_a_worker_without_announced_rows_gets_its_reason_to_wait(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(2), tasks_per_round=2)
    holder(market, IDLE)
    absent = market.worker()
    market.gather()
    assert "announced no rows of its own" in absent.waiting


def test_a_job_without_its_holders_names_the_command_for_them(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(2), tasks_per_round=2)
    assert market.why_waiting() == (
        f"no holder's worker is here, 0 of 2 holders have joined: "
        f"`gradmarket worker run --dataset FOLDER --for {market.job}`"
    )
    holder(market)
    market.gather()
    assert "no holder's worker" not in market.why_waiting()


def test_a_private_job_waits_for_its_holders_and_not_for_strangers(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(2), rounds=1, tasks_per_round=2)
    holder(market)
    for _ in range(2):
        market.worker()
    market.play(passes=20)
    assert market.state() == JobState.RUNNING
    assert "announced no rows of its own" not in market.why_waiting()
    assert market.why_waiting()


def test_a_holder_that_leaves_is_replaced(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(3), rounds=1, tasks_per_round=2)
    idle = holder(market, IDLE)
    others = [holder(market) for _ in range(2)]
    market.play(passes=120)
    assert market.state() == JobState.FINISHED
    assert answered_by(market, 0) == sorted(one.address for one in others)
    assert idle.address not in market.earned()


@pytest.mark.parametrize(
    "spoiled", leave_to_full([filled("w", np.nan), filled("w", np.inf), scaled(1e6), filled("loss", np.nan)])
)
def test_an_answer_beyond_the_bounds_is_not_paid_and_stops_nothing(new_market, spoiled) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(3), rounds=2, tasks_per_round=2, norm_bound=100.0)
    cheat = holder(market, spoiled)
    others = [holder(market) for _ in range(2)]
    market.play(passes=120)
    assert market.state() == JobState.FINISHED
    assert cheat.address not in market.earned()
    assert market.earned() == {one.address: 2 * PRICE for one in others}
    refused = market.replicas(cheat)
    assert len([one for one in refused if one.state == ReplicaState.REJECTED]) <= 1, "refused once, drawn no more"
    after = tensors.unpack_tensors(market.context.blobs.read(Digest(market.rounds()[-1].updated)))
    assert np.isfinite(after["w"]).all()


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        (scaled(1e6), "longer than the job's norm_bound"),
        (filled("w", np.nan), "not finite"),
        (filled("loss", 2.0**41), "loss"),
    ],
)
def test_a_refusal_does_not_publish_the_gradient_s_norm(new_market, spoiled, said) -> None:  # type: ignore[no-untyped-def]
    """The norm is computed from the holder's rows; verdicts, tasks and events are for everybody."""
    market = new_market(data=listed(2), rounds=1, norm_bound=100.0)
    holder(market, spoiled)
    market.until(lambda: market.replicas() and market.replicas()[0].state == ReplicaState.REJECTED)
    told = [row.reason for row in (*market.replicas(), *market.tasks())]
    told += [str(event) for event in market.events("task_failed")]
    assert any(said in text for text in told), told
    assert "gradient norm" not in " ".join(map(str, told))


@FULL
def test_five_cheats_on_the_list_do_not_pause_the_job(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(6), rounds=2, norm_bound=100.0)
    for _ in range(5):
        holder(market, scaled(1e6))
    honest = holder(market)
    market.play(passes=200)
    assert market.state() == JobState.FINISHED
    assert market.earned() == {honest.address: 2 * PRICE}


def test_money_is_reserved_for_another_holder_where_one_is_refused(new_market) -> None:  # type: ignore[no-untyped-def]
    """Neither the refused holder nor those that answered in the round fill the free place."""
    market = new_market(data=listed(3), rounds=1, tasks_per_round=2, norm_bound=100.0)
    cheat, honest = holder(market, scaled(1e6)), holder(market)
    late = join(market, market.worker(reserved=0))
    market.until(lambda: market.earned() and market.replicas(cheat)[-1].state == ReplicaState.REJECTED)
    market.gather()
    with market.reading() as reader:
        covered = newcomers.next_covered(reader, reader.get_one(Job, market.job), market.clock())
    assert covered == [late.address]
    assert honest.address in market.earned()


def test_one_holder_that_reports_a_fault_does_not_pause_the_job(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(2), rounds=1)
    one, other = holder(market), holder(market)
    market.gather()
    (taker,) = (worker for worker in (one, other) if worker.held)
    held = taker.newest()
    fault = StepFault(kind=FaultKind.DATA_REFUSED, node="", partition="train-0", message="row 7 is 3.25", row=7)
    taker.send_poll(
        given_up=[LeaseReturn(replica=held.lease.replica, fence=held.lease.fence, failed=True, reason="", fault=fault)]
    )
    market.drive()
    assert market.state() == JobState.RUNNING
    assert market.replica(taker).fault is None, "what it says of its rows is not kept"
    market.play(passes=120)
    assert market.state() == JobState.FINISHED


def test_no_private_task_is_audited_and_no_answer_is_served(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(1), rounds=2)
    holder(market)
    market.until(lambda: market.tasks()[0].payload)
    assert not market.all(Audit)
    payload = market.tasks()[0].payload
    with market.reading() as reader:
        assert visibility.load_access(reader, payload).holders
        assert not visibility.load_access(reader, market.rounds()[0].parameters).holders
        assert visibility.list_restricted_blobs(reader, [payload, market.rounds()[0].parameters]) == {payload}
    model = {"document": payload, "parameters": market.rounds()[0].parameters}
    reading = JobSpec.model_validate(market._spec(model=model))
    with pytest.raises(JobRefused, match="upload it first"):
        named_blobs.check_spec(market.context, reading, "requester")


def test_an_open_jobs_answer_is_no_holders(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=2)
    for _ in range(3):
        market.worker()
    market.until(lambda: market.tasks()[0].payload)
    with market.reading() as reader:
        assert not visibility.load_access(reader, market.tasks()[0].payload).holders


def test_answers_weigh_as_rows_up_to_a_cap(new_market) -> None:  # type: ignore[no-untyped-def]
    """A claim of a billion rows weighs as the cap's number, and the round merged again gives the same."""
    data = listed(2, rows_cap=30, least_rows=1)
    market = new_market(data=data, rounds=2, tasks_per_round=2)
    answers = {}

    def keep_answer(name: str, value: float) -> Behaviour:
        return Behaviour(lambda answer, _address: answers.setdefault(name, answer | {"w": np.full(4, value, "f4")}))

    holder(market, keep_answer("small", 1.0), rows=10)
    holder(market, keep_answer("huge", 5.0), rows=10**9)
    market.play()
    assert market.state() == JobState.FINISHED
    before = tensors.unpack_tensors(market.context.blobs.read(Digest(market.rounds()[0].parameters)))["w"]
    after = tensors.unpack_tensors(market.context.blobs.read(Digest(market.rounds()[0].updated)))["w"]
    mean = (1.0 * 10 + 5.0 * 30) / 40
    np.testing.assert_allclose(after, before - np.float32(0.125 * mean), rtol=1e-6)


def test_a_holder_s_first_row_count_stands(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(1))
    one = holder(market, rows=10)
    with market.context.begin() as work:
        assert holder_rows.record_holder(work, market.job, one.address, 1000, market.clock()) == (10, False)


def test_weighted_rounds_are_merged_again_after_a_crash(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(2, rows_cap=30), rounds=3, tasks_per_round=2)
    holder(market, rows=3), holder(market, rows=20)
    market.until(lambda: len(market.rounds()) > 1)
    market.crash()
    market.play()
    assert market.state() == JobState.FINISHED


SPEC = {
    "name": "private",
    "model": {"architecture": "mlp"},
    "data": {"inputs": INPUTS, "holders": ["0x" + "11" * 20], "least_rows": 8},
    "step": {"rows": 8},
    "optimizer": {"lr": 0.1},
    "rounds": 1,
    "price": "1",
}


def test_a_private_job_has_one_replica_a_task() -> None:
    spec = JobSpec.model_validate(SPEC)
    assert spec.private is not None
    assert spec.decided_alone
    assert JobSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"replication": {"replicas": 3}}, "none can vote"),
        ({"replication": {"name": "audited", "audit": 0.5}}, "no auditor can repeat"),
        ({"audit": {"probability": 0.1}}, "no auditor can repeat"),
        ({"audit": {"probability": 0.1}, "verifier": {"name": "loss_change"}}, "loss_change"),
        ({"sampling": "epochs"}, "draws from its own rows"),
        ({"step": {"rows": 9}}, "a step takes 9 rows"),
        ({"evaluation": {}}, "rows of your own"),
        ({"data": SPEC["data"] | {"rows_cap": 5}, "aggregator": {"name": "median"}}, "only the mean"),  # type: ignore[operator]
        ({"data": SPEC["data"] | {"holders": ["0x" + "ab" * 20, "0x" + "AB" * 20]}}, "is listed twice"),  # type: ignore[operator]
        ({"data": SPEC["data"] | {"holders": []}}, "at least 1"),  # type: ignore[operator]
    ],
)
def test_private_jobs_refuse_features_that_need_the_rows_elsewhere(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        JobSpec.model_validate(SPEC | changes)


SECURE = {
    "secure_aggregation": {"may_collude": 1, "may_drop": 1},
    "holders": [f"0x{n:02x}" + "11" * 19 for n in range(1, 7)],
}


SUMMED = {"tasks_per_round": 6, "min_tasks": 5}


@pytest.mark.parametrize(
    ("visibility", "model"),
    [
        ("requester", "The model's parameters are seen by the requester, and by a worker while it computes on them."),
        (
            "workers",
            "Workers see the model of this job and what it is measured on, and anybody may sign in as a worker.",
        ),
        ("public", "Everybody sees the model of this job."),
    ],
)
@pytest.mark.parametrize(
    ("data", "rows"),
    [
        ({}, "the service sees what each answers."),
        (
            SECURE,
            "the service sees the sum of a round's answers, and none of them alone. Warning: the sum has no noise, and "
            "a model made for it reads single rows off a sum: name privacy or step.per_row.",
        ),
    ],
)
def test_the_notice_of_a_private_job_names_the_readers_of_model_and_rows(
    visibility: str, model: str, data: dict[str, Any], rows: str
) -> None:
    changes = {"visibility": visibility, "data": SPEC["data"] | data, **(SUMMED if data else {})}  # type: ignore[operator]
    notice = JobSpec.model_validate(SPEC | changes).notice
    assert model in notice
    assert notice.endswith(f"The holders' rows stay with them; {rows}")
    assert ("Workers see the model of" in notice) == (visibility == "workers")


@pytest.mark.parametrize(
    ("visibility", "said"),
    [
        ("requester", "Workers see the architecture of the model and the training data of this job, and anybody"),
        ("workers", "Workers see the model and the training data of this job, and anybody"),
        ("public", "Everybody sees the model of this job. Workers see the training data of this job, and anybody"),
    ],
)
def test_the_notice_of_a_job_names_its_readers(visibility: str, said: str) -> None:
    data = {"manifest": "blake3:" + "4" * 64}
    assert JobSpec.model_validate(SPEC | {"data": data, "visibility": visibility}).notice.startswith(said)


def test_a_sum_that_is_noised_has_no_warning() -> None:
    changes = {"data": SPEC["data"] | SECURE, **SUMMED, "privacy": NOISED}  # type: ignore[operator]
    assert "Warning" not in JobSpec.model_validate(SPEC | changes).notice


@pytest.mark.parametrize("delta", [0.5, 0.2])
def test_a_delta_that_allows_to_disclose_one_holder_or_row_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="holders it allows to disclose one whole"):
        JobSpec.model_validate(SPEC | {"data": listed(5, least_rows=8), "privacy": NOISED | {"delta": delta}})
    per_row = {"clip_norm": 1.0, "noise_multiplier": 2.0, "epsilon": 40.0, "delta": delta}
    with pytest.raises(ValueError, match="rows it allows to disclose one whole"):
        JobSpec.model_validate(SPEC | {"step": SPEC["step"] | {"per_row": per_row}})  # type: ignore[operator]


def test_an_untold_number_of_rows_weighs_least() -> None:
    assert count_weighed_rows(None, 8, 100) == 8
    assert count_weighed_rows(10**12, 8, 100) == 100
    assert count_weighed_rows(50, 8, 100) == 50
    assert compute_row_scales([1, 3]) == (0.5, 1.5)


NOISED = {"noise_multiplier": 2.0, "epsilon": 4.0, "delta": 1e-3}


def test_a_job_with_a_privacy_budget_ends_at_its_epsilon_and_publishes_no_loss(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(2), rounds=50, tasks_per_round=2, privacy=NOISED, norm_bound=5.0)
    holder(market), holder(market)
    market.play(passes=120)
    assert market.state() == JobState.FINISHED
    spec = JobSpec.model_validate(market.the_job().spec)
    assert spec.privacy is not None
    assert len(market.rounds()) == HolderBudget(spec.privacy).rounds < 50
    assert "of epsilon 4 is spent" in market.the_job().reason
    assert [row.loss for row in market.rounds()] == [None] * len(market.rounds())
    assert "loss" not in {key for event in market.events("round_closed") for key, value in event.items() if value}


@FULL
def test_a_job_with_a_budget_of_a_row_ends_at_its_epsilon(new_market) -> None:  # type: ignore[no-untyped-def]
    """A holder of the fewest rows, one step's, uses each in every round."""
    per_row = {"clip_norm": 1.0, "noise_multiplier": 2.0, "epsilon": 4.0, "delta": 1e-3}
    step = {"kind": "gradient", "rows": 8, "per_row": per_row}
    market = new_market(data=listed(2, least_rows=8), rounds=50, tasks_per_round=2, step=step, norm_bound=5.0)
    holder(market), holder(market)
    market.play(passes=120)
    assert market.state() == JobState.FINISHED
    assert len(market.rounds()) == count_affordable_uses(RowPrivacy.model_validate(per_row)) < 50
    assert "of epsilon 4 of a row is spent" in market.the_job().reason


def test_the_noise_is_the_services_and_the_same_when_a_round_is_merged_again(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(2), rounds=4, tasks_per_round=2, privacy=NOISED, norm_bound=5.0)
    ends = Behaviour(lambda answer, _address: answer | {"w": np.zeros(4, np.float32)})
    holder(market, ends), holder(market, ends)
    market.until(lambda: len(market.rounds()) > 1)
    once = tensors.unpack_tensors(market.context.blobs.read(Digest(market.rounds()[1].parameters)))["w"]
    market.crash()
    market.play()
    assert market.state() == JobState.FINISHED
    ended = tensors.unpack_tensors(market.context.blobs.read(Digest(market.final_parameters())))["w"]
    for before, after, rounds in ((first_parameters()["w"], once, 1), (once, ended, 3)):
        moved = (before - after) / 0.125
        assert (moved != 0).all(), "answers of zeros: what moves is the noise alone"
        assert np.abs(moved).max() < 6 * math.sqrt(rounds) * 2.0 * 5.0 / 2


WORTH = SPEC | {
    "data": SPEC["data"] | {"manifest": "blake3:" + "4" * 64},  # type: ignore[operator]
    "evaluation": {"partition": "test"},
    "price": {"name": "worth", "floor": "1", "ceiling": "9"},
}


def test_a_private_job_may_pay_by_worth() -> None:
    spec = JobSpec.model_validate(WORTH)
    assert spec.by_worth is not None
    assert spec.most_expensive == 9
    assert JobSpec.model_validate(SPEC).by_worth is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"evaluation": None}, "measured on rows of your own"),
        ({"data": {"manifest": "blake3:" + "4" * 64}}, "name holders"),
        ({"privacy": {"noise_multiplier": 4.0, "epsilon": 8.0, "delta": 1e-5}}, "discloses what noise or masks hide"),
        ({"aggregator": {"name": "median"}}, "plain mean"),
        ({"optimizer": {"name": "adamw", "lr": 0.1}}, "plain mean"),
        ({"overlap": 1}, "plain mean"),
        ({"tasks_per_round": 200}, "name fewer draws or tasks_per_round"),
    ],
)
def test_worth_is_refused_where_it_cannot_be_measured(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        JobSpec.model_validate(WORTH | changed)


def test_other_answers_of_a_round_get_other_noise(new_market) -> None:  # type: ignore[no-untyped-def]
    """A restored service has the round answered again: with the same noise, the difference of both models has none."""
    market = new_market(data=listed(2), rounds=2, tasks_per_round=2, privacy=NOISED, norm_bound=5.0)
    holder(market), holder(market)
    market.until(lambda: len(market.rounds()) > 1)

    def noise(number: int = 0) -> bytes:
        with market.reading() as reader:
            row = reader.get_one(Round, (market.job, number))
            found = replay.inputs_of(reader, reader.get_one(Job, market.job), row).recipe.noise
        assert found is not None
        return bytes(found.seed)

    once = noise()
    assert noise() == once != noise(1)
    with market.context.begin() as work:
        task = work.get_one(Task, next(task.id for task in market.tasks() if task.payload))
        task.payload = Digest("blake3:" + "ab" * 32)
    assert noise() != once


def brought(market: MarketFixture, worker: SimWorker) -> Digest:
    """Its payload has come, and the service is killed before it is booked; returns the revealed digest."""
    held = worker.computed(worker.newest())
    said = Answer(commitment=worker.commitment(held), salt=held.salt, root=held.root)
    worker.send_poll(answers=[said])
    want = wants(market, worker, held.lease.replica, held.lease.fence)
    with market.context.blobs.receive() as incoming:
        arrival = payload_upload.build_incoming_upload(want, incoming)
        arrival.take(held.payload)
        payload_upload.inspect_and_store_payload(market.context, want, arrival)
    market.crash()
    return held.root


def test_an_answer_that_is_never_booked_is_served_to_nobody_and_dropped(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(2), rounds=1)
    one = holder(market, WITHHOLDER)
    market.gather(one)
    digest = brought(market, one)
    assert market.context.blobs.has(digest)
    with market.reading() as reader:
        assert visibility.load_access(reader, digest).holders
    holder(market)
    market.lapse(collect.LEFT_S + 1)
    market.play(passes=120)
    assert market.state() == JobState.FINISHED
    assert not market.context.blobs.has(digest)
    assert market.all(UnneededBlob) == []


def test_an_answer_that_is_refused_is_no_blob(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(1), rounds=1, norm_bound=100.0)
    cheat = holder(market, replace(scaled(1e6), uploads=False))
    market.gather()
    assert not market.context.blobs.has(brought(market, cheat))


def test_an_answer_that_comes_again_after_the_crash_is_paid(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(data=listed(1), rounds=1)
    one = holder(market)
    market.gather()
    brought(market, one)
    market.play()
    assert (market.state(), market.earned()) == (JobState.FINISHED, {one.address: PRICE})
