"""The head of an ended job's log covers all records of each task that is over: one that is left out is found."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from sqlalchemy import select

from gradmarket.market.features.disputes.questions import HEARING_S
from gradmarket.market.features.log.job_log import encode_attempt
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.messages import LogHead
from gradmarket.market.terms import TASK_ENDED, TASK_OVER, Amount, Hash, JobState, ReplicaId, TaskState
from gradmarket.market.wire.evidence import PublishedEvidence, PublishedPayment, PublishedTask
from gradmarket.market.wire.log_proofs import LeafKind, PublishedHead
from gradmarket.public_audit.job_proof import ClauseResult, JobRecord
from gradmarket.public_audit.log_proof import prove_log
from requester.features.log import leaf_rows
from requester.features.log.leaf_rows import LogLeaf
from requester.features.records.evidence_routes import evidence_of
from requester.features.records.task_views import task_view
from requester.moves import ending
from requester.store import jobs
from requester.store.locks import lock_row
from requester.store.tables import Earned, Job, Task
from tests.features.auditors.test_panels import TWO, panel, sit
from tests.features.disputes.test_auditors_heard import answer_as_auditor, two_auditors
from tests.features.disputes.test_hearings import root_of, say, split, traced
from tests.requester.market_auditor import audits_of
from tests.requester.market_fixture import MarketFixture

NewMarket = Callable[..., MarketFixture]


def end(market: MarketFixture) -> None:
    with market.context.begin() as work:
        ending.end_job(market.context, work, lock_row(work, Job, market.job), JobState.CANCELLED, "so")


def fail_unheard(market: MarketFixture) -> None:
    """Neither side of the only task's split vote answers its referee."""
    split(market)
    market.lapse(HEARING_S + 1.0)
    assert market.tasks()[0].state is TaskState.FAILED


def list_logged(market: MarketFixture) -> list[LogLeaf]:
    with market.context.reading() as reader:
        return list(reader.session.scalars(select(LogLeaf).order_by(LogLeaf.number)))


def prove(
    market: MarketFixture, leaves: Sequence[Hash], paid: int | None = None, hidden: str = "", silenced: str = ""
) -> ClauseResult:
    """Audits the tasks that are shown by a signed head over these leaves; `paid`: those that the batch of all pay
    carries. The service hides one task, and all commitments to the silenced one."""
    with market.context.reading() as reader:
        publication = jobs.load_publication(reader.get_one(Job, market.job))
        rows = [task for task in market.tasks() if task.id != hidden]
        shown = {task.id: evidence_of(reader, reader.get_one(Task, task.id)) for task in rows}
        tasks = [PublishedTask.model_validate(task_view(task, published=True).model_dump(mode="json")) for task in rows]
    if silenced:
        shown[silenced] = shown[silenced].model_copy(update={"replicas": [], "waves": [], "hearings": None})
    told = {task: PublishedEvidence.model_validate(each.model_dump(mode="json")) for task, each in shown.items()}
    head = LogHead(1, len(leaves), Hash(GrowingTree(leaves).compute_root()))
    fields = {"job": head.job, "size": head.size, "root": head.root, "signature": market.context.sign(head)}
    log = SimpleNamespace(leaves=leaves, head=PublishedHead(**fields), carried={})
    payments = []
    if paid is not None:
        log.carried[0] = LogHead(1, paid, Hash(GrowingTree(leaves[:paid]).compute_root()))
        payments = [
            PublishedPayment(id=row.id, task=row.replica_id.rsplit("-", 2)[0], replica=ReplicaId(row.replica_id),
                             worker=row.worker, amount=Amount(row.units), payload_root=row.digest, batch=0)
            for row in market.all(Earned)
        ]  # fmt: skip
    opened, domain = SimpleNamespace(signer=market.context.signer_address, unit=1, job=1), market.context.domain
    record = {"evidence": told, "opened": opened, "domain": domain, "log": log, "payments": payments, "closed": []}
    record |= {"tasks": tasks, "publication": publication}
    return prove_log(cast(JobRecord, SimpleNamespace(**record)))


def test_each_leaf_that_the_log_of_an_ended_job_lacks_about_a_failed_task_is_a_fault(new_market: NewMarket) -> None:
    market = traced(new_market)
    fail_unheard(market)
    end(market)
    logged = list_logged(market)
    assert prove(market, [leaf.hash for leaf in logged]).faults == ()
    about = [leaf for leaf in logged if leaf.about.startswith(market.tasks()[0].id)]
    hearing = {LeafKind.HEARING, LeafKind.ANSWERS, LeafKind.RULING}
    assert {leaf.kind for leaf in about} >= hearing | {LeafKind.OFFER, LeafKind.COMMITMENT, LeafKind.REVEAL}
    for hidden in about:
        faults = prove(market, [leaf.hash for leaf in logged if leaf is not hidden]).faults
        assert ["its signer ended the job with" in fault.detail for fault in faults] == [True], hidden.kind


def test_an_attempt_that_the_market_hides_or_shows_without_its_commitments_is_found_in_the_log(
    new_market: NewMarket,
) -> None:
    """The last attempt has no later one whose number would show a gap, and may have no commitment."""
    market = traced(new_market)
    fail_unheard(market)
    end(market)
    heard, last = market.tasks()
    leaves = [leaf.hash for leaf in list_logged(market)]
    assert {row.task_id for row in market.replicas()} == {heard.id}
    assert prove(market, leaves).faults == ()
    for lie, detail in (
        ({"hidden": last.id}, "attempt 1 at task 0 of round 0: the log has it with 0 commitments, and none is listed"),
        ({"silenced": heard.id}, "attempt 0 at task 0 of round 0: the log has it with 2 commitments, and 0 are shown"),
    ):
        assert detail in map(str, prove(market, leaves, **lie).faults)


def test_the_first_attempt_of_a_round_that_the_market_hides_is_found_in_the_log(new_market: NewMarket) -> None:
    market = traced(new_market, rounds=2)
    leaves = [Hash(hash_leaf(encode_attempt(1, 0, 0, 2)))]
    (hidden,) = (fault for fault in prove(market, leaves).faults if "none is listed" in fault.detail)
    assert hidden.about == "attempt 0 at task 0 of round 1"


def test_a_task_whose_lease_ends_after_its_job_is_logged_as_cancelled(new_market: NewMarket) -> None:
    """No event tells of that otherwise, and nothing is settled any more."""
    market = new_market(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    worker = market.worker()
    market.gather(worker)
    end(market)
    market.drive()
    assert market.tasks()[0].state not in TASK_ENDED
    market.lapse(market.task().offer.lease_seconds + 1.0)
    assert market.tasks()[0].state is TaskState.CANCELLED
    assert prove(market, [leaf.hash for leaf in list_logged(market)]).faults == ()


@pytest.mark.parametrize("silent", [False, True])
def test_what_happens_to_a_job_after_its_end_is_logged_with_its_event(new_market: NewMarket, silent: bool) -> None:
    """Such as a ruling: no batch comes after it that would log it."""
    market = traced(new_market)
    team = split(market)
    end(market)
    for worker in team[: 1 + silent]:
        say(market, worker, b"nonsense" if silent else root_of(worker, 3))
    market.lapse(HEARING_S + 1.0)
    assert {LeafKind.HEARING, LeafKind.ANSWERS, LeafKind.RULING} <= {leaf.kind for leaf in list_logged(market)}
    proven = prove(market, [leaf.hash for leaf in list_logged(market)])
    assert (proven.faults, [line for line in proven.unseen if "not in the log" in line]) == ((), [])


def test_seals_that_no_batch_logged_yet_are_in_the_head_that_the_job_ends_with(new_market: NewMarket) -> None:
    """Of a running job they may not be: nobody audits one."""
    market = new_market(audit=TWO, rounds=9)
    for _ in range(3):
        market.worker()
    market.until(lambda: audits_of(market))
    sit(*panel(market, None, None))
    market.until(lambda: market.tasks(Task.state == TaskState.FINAL), *market.workers)
    assert market.state() == JobState.RUNNING
    with market.context.reading() as reader:
        shown = evidence_of(reader, reader.get_one(Task, market.tasks(Task.state == TaskState.FINAL)[0].id)).audit
    assert shown is not None
    assert shown.panel
    assert not list_logged(market)
    end(market)
    logged = list_logged(market)
    assert [leaf.kind for leaf in logged].count(LeafKind.SEAL) >= 2
    assert prove(market, [leaf.hash for leaf in logged]).faults == ()


def test_a_panel_s_seals_and_hearing_after_the_batch_of_its_task_s_pay_are_no_faults_and_left_out_ones_are(
    new_market: NewMarket,
) -> None:
    """Pay waits for no audit."""
    market = traced(new_market, audit=TWO)
    auditors = two_auditors(market)
    with market.context.begin() as work:
        leaf_rows.append_leaves(work, work.get_one(Job, market.job))
    paid = len(list_logged(market))
    sit(*auditors)
    answer_as_auditor(market, auditors[0])
    market.lapse(HEARING_S + 1.0)
    assert market.state() == JobState.FINISHED
    logged = list_logged(market)
    (hearing,) = (leaf for leaf in logged if leaf.kind == LeafKind.HEARING)
    seals = [leaf for leaf in logged if leaf.kind == LeafKind.SEAL]
    assert [leaf.about.split("/")[1:] for leaf in seals] == [["0", one.sealing.signer] for one in auditors]
    assert (market.tasks()[0].state in TASK_OVER, hearing.number >= paid) == (True, True)
    assert prove(market, [leaf.hash for leaf in logged], paid).faults == ()
    for hidden, about in ((hearing, "the hearing of"), *((seal, f"the seal of {seal.about[-42:]}") for seal in seals)):
        (fault,) = prove(market, [leaf.hash for leaf in logged if leaf is not hidden], paid).faults
        assert about in fault.about
