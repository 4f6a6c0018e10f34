"""A job's referee hears a split vote: who loses is unpaid, silence loses in time, and where it cannot tell votes do."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import HTTPException, Request
from sqlalchemy import event

from gradmarket.market.errors import Conflict, NotFound, Refused, SignatureRefused
from gradmarket.market.features.disputes.questions import (
    HEARING_S,
    OVER,
    DisputeAnswer,
    HearingAnswer,
    HearingQuestion,
    Question,
    digest_reply,
    join_parts,
)
from gradmarket.market.features.disputes.transcript import find_transcript_faults
from gradmarket.market.features.log.merkle import MerkleTree
from gradmarket.market.features.verify import VerdictCase, list_case_faults
from gradmarket.market.manifest import Column, Manifest, Partition
from gradmarket.market.messages import Outcome
from gradmarket.market.rules.proof import Fault
from gradmarket.market.signing import digest_struct, sign_digest
from gradmarket.market.terms import Digest, JobState, ReplicaState, TaskState, blob_digest
from gradmarket.market.wire.evidence import PublishedEvidence
from gradmarket.market.wire.hearing_messages import HearingReceipt, PublishedHearing, SignedRuling, name_dispute
from gradmarket.market.wire.poll import hash_of
from gradmarket.public_audit.features.disputes import prove_disputes
from gradmarket.public_audit.job_proof import ClauseResult, JobLog, JobRecord
from graphdoc import tensors
from graphdoc.encoding import canonical
from graphdoc.tracing.packed import digest_plain_bytes
from requester.api.payload_uploads import PieceReaders
from requester.dataset import OURS
from requester.exchange import outbox
from requester.features import disputes
from requester.features.disputes import HearingsFeature, hearing_exchange, hearing_rows, hearings, workers_heard
from requester.features.disputes.hearing_rows import AT_ONCE, HearingValue, TaskHearing
from requester.features.records.evidence_routes import evidence_of
from requester.moves import judging
from requester.store import in_hand, jobs
from requester.store.tables import Job, Replica, Task
from tests.attacks.tiny import ROWS, document, table
from tests.kit.behaviour import HONEST, Behaviour, scaled
from tests.lanes import FULL
from tests.patience import PATIENCE_S
from tests.requester.books import check_books
from tests.requester.market_fixture import MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
LIE = scaled(3.0)
VOTES = {"replication": {"name": "fixed", "replicas": 2, "max_replicas": 4}, "disputes": "referee"}
ALONE = bytes(32)
Receive = Callable[[], Awaitable[dict[str, Any]]]


def split(market: MarketFixture, *behaviours: Behaviour, capacity: int = 1) -> list[SimWorker]:
    """Two workers have revealed different answers to each of `capacity` tasks, and the stages are at rest."""
    team = [market.worker(how) for how in behaviours or (HONEST, LIE)]
    for worker in team:
        worker.capacity = capacity
    for _ in range(capacity):
        market.gather(*team)
    market.commit(*team)
    market.reveal(*team)
    return team


def write_ruling(market: MarketFixture, one: SimWorker, other: SimWorker, *wrong: SimWorker) -> None:
    """As a hearing of their answers would have left it."""
    with market.context.begin() as work:
        ruling = SignedRuling(wrong=tuple(each.address for each in wrong), leaf=3, why="so", signature=bytes(65))
        work.add(
            TaskHearing(
                task_id=market.task().id,
                number=len(market.all(TaskHearing)),
                job_id=market.job,
                one=one.address,
                other=other.address,
                one_root=Digest("blake3:" + "1" * 64),
                other_root=Digest("blake3:" + "2" * 64),
                answer_s=60,
                most_values=1,
                across=False,
                questions=[],
                most_bytes=0,
                ruling=ruling.model_dump(mode="json"),
            )
        )


def test_the_standing_answer_is_paid_and_the_other_is_rejected(new_market: NewMarket) -> None:
    market = new_market(**VOTES)
    honest, liar = market.worker(), market.worker(LIE)
    market.gather(honest, liar)
    write_ruling(market, honest, liar, liar)
    market.play()
    assert market.state() == JobState.FINISHED
    assert set(market.earned()) == {honest.address}
    lost = market.replica(liar)
    assert (lost.state, lost.outcome, lost.reason) == (ReplicaState.REJECTED, Outcome.REJECTED, workers_heard.REASON)
    assert market.account(liar).rests_until > market.account(honest).rests_until
    check_books(market)


@FULL
def test_a_task_that_ended_otherwise_leaves_no_hearing_open_and_nobody_wrong(new_market: NewMarket) -> None:
    market = traced(new_market)
    honest, _ = split(market)
    say(market, honest, root_of(honest, 3))
    with market.context.begin() as work:
        hand = in_hand.lock_task_if_free(work, market.task().id)
        assert hand is not None
        judging.fail_task(market.context, work, hand, "so", market.clock.now)
    market.lapse(HEARING_S + 1.0)
    market.drive()
    (told,) = market.events("heard")
    assert (told["wrong"], told["reason"]) == ([], OVER)
    assert [row.due_at for row in market.all(TaskHearing)] == [None]
    check_books(market)


def test_further_equal_answers_follow_the_one_that_stands(new_market: NewMarket) -> None:
    """Of four, two and two agree: no quorum; the one of each pair that was not heard follows the other."""
    votes = {"replication": {"name": "fixed", "replicas": 4, "max_replicas": 4}}
    market = new_market(**VOTES | votes)
    honest, second, liar, friend = (market.worker(how) for how in (HONEST, HONEST, LIE, LIE))
    market.gather(*market.workers)
    write_ruling(market, second, liar, second, liar)
    write_ruling(market, honest, friend, friend)
    market.play()
    assert set(market.earned()) == {honest.address, second.address}
    assert {market.replica(each).state for each in (liar, friend)} == {ReplicaState.REJECTED}
    check_books(market)


def test_ballots_decide_where_the_referee_cannot(new_market: NewMarket) -> None:
    """Its document is not here: the hearing ends with nobody wrong, and a further wave decides."""
    market = new_market(**VOTES)
    honest, liar = split(market)
    (told,) = market.events("heard")
    assert told["wrong"] == []
    assert "cannot trace it" in told["reason"]
    third = market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert set(market.earned()) == {honest.address, third.address}
    assert market.replica(liar).state == ReplicaState.REJECTED
    check_books(market)


def test_where_no_answer_stands_the_task_is_done_again_and_nobody_is_paid(new_market: NewMarket) -> None:
    market = new_market(**VOTES)
    team = market.worker(), market.worker(LIE)
    market.gather(*team)
    write_ruling(market, *team, *team)
    market.commit(*team)
    market.reveal(*team)
    assert [task.state for task in market.tasks()] == [TaskState.FAILED, TaskState.OPEN]
    assert market.earned() == {}
    assert market.account(team[0]).rests_until > market.clock()


def test_a_job_without_a_referee_asks_another_worker(new_market: NewMarket) -> None:
    market = new_market(**{name: value for name, value in VOTES.items() if name != "disputes"})
    split(market)
    assert market.task().state == TaskState.OPEN
    assert market.all(TaskHearing) == []


def traced(new_market: NewMarket, **more: Any) -> MarketFixture:
    """A job whose document, rows and hearing are real; its answers are not."""
    rows = tensors.pack_tensors(table())
    inputs = {"x": Column(dtype="float32", shape=(3,)), "y": Column(dtype="float32", shape=(1,))}
    partition = Partition(
        name="train", link=OURS + blob_digest(rows), digest=blob_digest(rows), bytes=len(rows), rows=ROWS
    )
    manifest = canonical(Manifest(inputs=inputs, partitions=(partition,)).model_dump(mode="json"))
    named = {"document": blob_digest(document()), "manifest": blob_digest(manifest)}
    market = new_market(**VOTES, published=named, **more)
    for blob in (rows, manifest, document()):
        market.context.blobs.put(blob)
    return market


def asked_of(market: MarketFixture, worker: SimWorker) -> HearingQuestion:
    (question,) = hearing_exchange.list_asked_questions(market.context, worker.address).questions
    return question


def sign_answer(
    market: MarketFixture, worker: SimWorker, body: bytes, asked: HearingQuestion | None = None, **changes: Any
) -> HearingAnswer:
    """Returns an answer to the question, by default its one open question; `changes` are a cheater's fields."""
    asked = asked or asked_of(market, worker)
    with market.context.reading() as reader:
        offer = reader.get_one(Task, reader.get_one(Replica, asked.replica).task_id).offer_digest
    dispute = name_dispute(offer, asked.sides, asked.roots)
    question = Question(asked.asked, asked.level, asked.place).digest(dispute, asked.number)
    struct = DisputeAnswer(dispute, worker.address, asked.number, question, digest_reply(body))
    signature = sign_digest(worker.key, digest_struct(market.context.domain, struct))
    fields: dict[str, Any] = {
        "side": worker.address,
        "number": asked.number,
        "said": digest_reply(body),
        "signature": signature,
    }
    return HearingAnswer(**(fields | {"replica": asked.replica} | changes))


def say(
    market: MarketFixture, worker: SimWorker, body: bytes, asked: HearingQuestion | None = None, **changes: Any
) -> HearingAnswer:
    """Brings the answer that `sign_answer` returns."""
    said = sign_answer(market, worker, body, asked, **changes)
    door = hearing_exchange.admit_answer(market.context, worker.address, said)
    hearing_exchange.store_answer(market.context, worker.address, door, said, body, len(body))
    return said


def root_of(worker: SimWorker, parts: int, root: Digest | None = None) -> bytes:
    """The answer to the first question of a side whose checkpoints are nonsense but for the last.

    `root`: of its payload, by default its newest one's.
    """
    leaves = [ALONE] * (parts - 1) + [digest_plain_bytes(hash_of(root or worker.newest().root))]
    tree = MerkleTree(leaves)
    return join_parts([tree.root, leaves[-1], b"".join(tree.path(parts - 1))])


def test_a_silent_side_loses_in_time_and_an_answer_is_taken_once(new_market: NewMarket) -> None:
    market = traced(new_market)
    honest, liar = split(market)
    (row,) = market.all(TaskHearing)
    assert row.due_at == market.clock() + HEARING_S
    assert market.why_waiting() == "a referee hears workers whose answers to a task differ"
    announced = {worker: outbox.load_poll_answers(market.context, [worker.poll()])[0] for worker in (honest, liar)}
    assert all(told.hearings == (worker.newest().lease.replica,) for worker, told in announced.items())
    attending = honest.poll(attending=(honest.newest().lease.replica,))
    assert outbox.load_poll_answers(market.context, [attending])[0].hearings == ()

    with pytest.raises(SignatureRefused):
        say(market, honest, b"", signature=bytes(65))
    with pytest.raises(NotFound):
        say(market, honest, b"", number=1)
    with pytest.raises(NotFound):
        say(market, honest, b"", side=liar.address)
    with pytest.raises(NotFound):
        say(market, honest, b"", replica=liar.newest().lease.replica)
    bare = market.worker()
    assert hearing_exchange.list_asked_questions(market.context, bare.address).questions == ()

    said = say(market, honest, root_of(honest, 3))
    assert hearing_exchange.list_asked_questions(market.context, honest.address).questions == ()
    with pytest.raises((Conflict, NotFound)):
        hearing_exchange.admit_answer(market.context, honest.address, said)
    market.lapse(HEARING_S + 1.0)
    (told,) = market.events("heard")
    assert told["wrong"] == [liar.address]
    assert told["reason"] == "it did not answer in time"
    market.play(honest, liar)
    assert set(market.earned()) == {honest.address}
    check_books(market)


def test_a_hearing_that_names_a_panel_where_the_job_has_none_is_a_fault_of_the_audit(new_market: NewMarket) -> None:
    market = traced(new_market)
    honest, _ = split(market)
    say(market, honest, root_of(honest, 3))
    market.lapse(HEARING_S + 1.0)
    market.play()
    with market.context.reading() as reader:
        shown = evidence_of(reader, reader.get_one(Task, market.task().id))
        publication = jobs.load_publication(reader.get_one(Job, market.job))
    evidence = PublishedEvidence.model_validate(shown.model_dump(mode="json"))
    (heard,) = evidence.hearings or ()

    def prove(hearing: PublishedHearing) -> ClauseResult:
        told = {market.task().id: evidence.model_copy(update={"hearings": (hearing,)})}
        opened, domain = SimpleNamespace(signer=market.context.signer_address), market.context.domain
        record = SimpleNamespace(evidence=told, domain=domain, opened=opened, publication=publication, log=JobLog())
        (result,) = prove_disputes(cast(JobRecord, record), None)
        return result

    honest_one, labelled = prove(heard), prove(heard.model_copy(update={"run": 0}))
    assert (honest_one.faults, honest_one.checked) == ((), 0), "a ruling that is not played again is not proven"
    assert "the operations of 1 hearing: no task is computed here" in honest_one.unseen
    assert [each.detail for each in labelled.faults] == ["it is of a panel's auditors, and the job has no panel"]


def test_a_question_that_the_service_puts_late_may_be_answered_as_long_as_any(new_market: NewMarket) -> None:
    """It was away, or heard others, after both had answered the one before."""
    market = traced(new_market)
    team = split(market)
    for worker in team:
        say(market, worker, root_of(worker, 3))
    market.clock.now += 10 * HEARING_S
    market.drive()
    assert market.events("heard") == []
    asked = [asked_of(market, worker) for worker in team]
    assert {(each.asked, each.number, each.until) for each in asked} == {("children", 1, market.clock() + HEARING_S)}


def test_a_side_that_could_not_answer_during_an_outage_is_asked_again(new_market: NewMarket) -> None:
    market = traced(new_market)
    honest, liar = split(market)
    say(market, honest, root_of(honest, 3))
    market.crash()
    market.clock.now += 10 * HEARING_S
    with HearingsFeature().serve_beside(market.context, "http://127.0.0.1"):
        market.drive()
    assert market.events("heard") == []
    say(market, liar, root_of(liar, 3))
    market.drive()
    assert {asked_of(market, worker).number for worker in (honest, liar)} == {1}
    row = market.all(TaskHearing)[0]
    assert list(find_transcript_faults(market.context.domain, market.context.signer_address, market.task().offer_digest,
                                       row.publish())) == ["it has no ruling"]  # fmt: skip


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_clock_that_was_far_ahead_holds_no_hearing_up_and_costs_no_side(new_market: NewMarket, answers: int) -> None:
    market = traced(new_market)
    team = split(market)
    for worker in team[:answers]:
        say(market, worker, root_of(worker, 3))
    market.clock.now -= 86400.0
    with market.context.begin() as work:
        assert HearingsFeature().bound_times(work, market.clock()) == (answers < len(team))
    market.drive()
    (told,) = market.events("heard")
    assert told["wrong"] == []
    assert "clock" in told["reason"]


@pytest.mark.parametrize("votes", [VOTES, VOTES | {"replication": {"name": "fixed", "replicas": 3}}])
def test_a_wave_that_was_opened_before_all_differing_answers_were_heard_is_found(
    new_market: NewMarket, votes: dict[str, Any]
) -> None:
    market = new_market(**votes)
    split(market, *(HONEST, LIE, scaled(5.0))[: votes["replication"]["replicas"]])
    for _ in range(2):
        market.worker(HONEST)
    market.play()
    with market.context.reading() as reader:
        shown = evidence_of(reader, reader.get_one(Task, market.task().id))
        checks = jobs.load_publication(reader.get_one(Job, market.job)).checks
    evidence = PublishedEvidence.model_validate(shown.model_dump(mode="json"))
    case, heard = VerdictCase(market.context.domain, market.context.signer_address, checks, evidence), evidence.hearings
    assert (len(evidence.waves), list_case_faults(case)) == (2, [])
    for each in heard or pytest.fail("nobody was heard"):
        fewer = evidence.model_copy(update={"hearings": tuple(other for other in heard or () if other != each)})
        found = list_case_faults(replace(case, evidence=fewer))
        assert [(one.fault, one.about) for one in found] == [(Fault.UNHEARD, "wave 1")]
    assert list_case_faults(replace(case, checks=replace(checks, refereed=False), evidence=fewer)) == []


def test_a_side_whose_signed_answer_does_not_hold_loses_at_once(new_market: NewMarket) -> None:
    market = traced(new_market)
    honest, liar = split(market)
    say(market, liar, b"nonsense")
    say(market, honest, root_of(honest, 3))
    market.drive()
    (told,) = market.events("heard")
    assert told["wrong"] == [liar.address]
    assert "does not hold" in told["reason"]
    assert market.all(HearingValue) == []


def test_other_bytes_than_were_signed_are_not_taken(new_market: NewMarket) -> None:
    market = traced(new_market)
    honest, _ = split(market)
    body = root_of(honest, 3)
    said = sign_answer(market, honest, body)
    door = hearing_exchange.admit_answer(market.context, honest.address, said)
    with pytest.raises(Refused, match="not those that were signed"):
        hearing_exchange.store_answer(market.context, honest.address, door, said, body + b"x", len(body) + 1)
    with pytest.raises(Refused, match="another length"):  # an auditor would find another length than is published
        hearing_exchange.store_answer(market.context, honest.address, door, said, body, len(body) + 1)
    assert not door.may_be_longer
    assert door.most_bytes >= len(body)


def test_an_answer_that_trickles_is_read_no_longer_than_its_question_lasts(new_market: NewMarket) -> None:
    market = traced(new_market)
    honest, _ = split(market)
    asked, body = asked_of(market, honest), root_of(honest, 3)

    async def receive() -> dict[str, Any]:
        await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)
        raise AssertionError("it is read for ever")

    market.clock.now = float(asked.until)
    with pytest.raises(HTTPException, match="late"):
        bring(market, honest, sign_answer(market, honest, body), len(body), receive)


def bring(market: MarketFixture, side: SimWorker, said: HearingAnswer, size: int, receive: Receive) -> HearingReceipt:
    """At the door of workers, with a body as it is received."""
    fields = said.model_dump(mode="json").items()
    headers = [(f"hearing-{name}".encode(), str(value).encode()) for name, value in fields]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/work/hearings",
        "headers": [*headers, (b"content-length", str(size).encode())],
        "app": SimpleNamespace(state=SimpleNamespace(readers=PieceReaders())),
    }
    return asyncio.run(disputes.answer(market.context, side.address, Request(scope, receive)))


def test_an_answer_on_its_way_takes_no_memory_of_its_length(new_market: NewMarket) -> None:
    """Each of many sides may bring 32 MiB, as slowly as its question lasts."""
    market = traced(new_market)
    honest, _ = split(market)
    chunk, count, held = bytes(2**20), 24, list[int]()
    said = sign_answer(market, honest, chunk * count)
    with market.context.begin() as work:
        (row,) = hearing_rows.list_hearings(work, market.task().id)
        row.most_bytes = len(chunk) * count

    async def receive() -> dict[str, Any]:
        held.append(tracemalloc.get_traced_memory()[0])
        return {"type": "http.request", "body": bytes(len(chunk)), "more_body": len(held) < count}

    tracemalloc.start()
    try:
        bring(market, honest, said, len(chunk) * count, receive)
    finally:
        tracemalloc.stop()
    assert max(held) - held[0] < len(chunk) * count // 2
    (kept,) = market.all(HearingValue)
    assert kept.body == chunk * count


def test_hearings_that_it_has_answered_hide_no_question_from_a_side(new_market: NewMarket) -> None:
    """The others answer at the last moment: so many hearings are open, and wait for them."""
    market = traced(new_market)
    honest, _ = split(market)
    waits = asked_of(market, honest)
    say(market, honest, root_of(honest, 3))
    (row,) = market.all(TaskHearing)
    columns = {column.key: getattr(row, column.key) for column in TaskHearing.__table__.columns}
    unanswered = [{**row.questions[-1], "answers": []}]
    with market.context.begin() as work:
        for number in range(1, AT_ONCE + 1):
            last = {"questions": unanswered, "due_at": waits.until + 1.0} if number == AT_ONCE else {}
            work.add(TaskHearing(**{**columns, "number": number, **last}))
    assert len(hearing_exchange.list_asked_questions(market.context, honest.address).questions) == 1


def test_long_answers_are_read_one_by_one_as_they_are_played(new_market: NewMarket) -> None:
    """A hearing between classes has up to 36 of 32 MiB each."""
    market = traced(new_market)
    honest, liar = split(market)
    body = root_of(honest, 3)
    say(market, honest, body)
    task = market.task().id
    with market.context.begin() as work:
        (row,) = hearing_rows.list_hearings(work, task)
        (said,) = row.questions[0]["answers"]
        row.questions = [{**row.questions[0], "answers": [{**said, "body": None}]}]
        work.add(HearingValue(task_id=task, number=0, question=0, side=honest.address, body=body))
    read = list[str]()

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        read.extend(["value"] if "FROM hearing_values" in statement else [])

    engine = market.context.sessions.kw["bind"]
    event.listen(engine, "before_cursor_execute", note)
    try:
        with market.context.reading() as reader:
            scene = hearings._load_scene(market.context, reader, task)
        assert (scene is not None, read) == (True, [])
        say(market, liar, root_of(liar, 3))
        market.drive()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert read
    assert asked_of(market, honest).number == 1
