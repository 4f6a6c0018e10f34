"""A hearing that a service does not show is found by its leaf, in any order of its sides; one under way is no fault."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import select

from gradmarket.market.features.disputes.questions import HEARING_S
from gradmarket.market.features.disputes.receipts import UNDER_WAY
from gradmarket.market.features.disputes.transcript import count_answers
from gradmarket.market.features.log.job_log import encode_answers, encode_hearing
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.features.verify import VerdictCase, list_case_faults
from gradmarket.market.terms import Address, AuditState, Hash, JobId, JobState, TaskState
from gradmarket.market.wire.evidence import PublishedEvidence, PublishedSeat, PublishedTask
from gradmarket.public_audit.features.disputes import _list_possible_hearings, prove_disputes
from gradmarket.public_audit.job_proof import ClauseResult, JobRecord, _find_hidden_attempts
from gradmarket.public_audit.job_records import JobSource
from requester.features.audits.audit_tables import Audit
from requester.features.log.leaf_rows import LogLeaf
from requester.moves import ending
from requester.store import jobs
from requester.store.locks import lock_row
from requester.store.tables import Job
from tests.features.auditors.test_panels import TWO
from tests.features.disputes.test_auditors_heard import answer_as_auditor, differ
from tests.features.disputes.test_hearing_receipts import Heard, heard, judge, show
from tests.features.disputes.test_hearings import root_of, say, split, traced
from tests.requester.market_fixture import MarketFixture

__all__ = ["heard"]

NewMarket = Callable[..., MarketFixture]


def end(market: MarketFixture) -> None:
    with market.context.begin() as work:
        ending.end_job(market.context, work, lock_row(work, Job, market.job), JobState.CANCELLED, "so")


def prove(market: MarketFixture, evidence: PublishedEvidence, more: Sequence[Hash] = ()) -> list[ClauseResult]:
    with market.context.reading() as reader:
        publication = jobs.load_publication(reader.get_one(Job, market.job))
        logged = reader.session.scalars(select(LogLeaf.hash).order_by(LogLeaf.number)).all()
    opened, log = SimpleNamespace(signer=market.context.signer_address), SimpleNamespace(leaves=[*logged, *more])
    told: dict[str, Any] = {"evidence": {"t": evidence}, "domain": market.context.domain, "opened": opened}
    return prove_disputes(cast(JobRecord, SimpleNamespace(**told, publication=publication, log=log)), None)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shown", [False, True])
def test_a_hearing_is_found_by_its_leaf_in_either_order_of_its_sides(heard: Heard, turned: bool, shown: bool) -> None:
    """Also beside the one that is shown, as a service would hold a second one with another end."""
    market, evidence = heard.market, heard.evidence
    (held,) = evidence.hearings or ()
    sides = held.sides[::-1] if turned else held.sides
    leaf = Hash(hash_leaf(encode_hearing(evidence.offer_digest, *sides, None)))
    (result,) = prove(market, evidence if shown else evidence.model_copy(update={"hearings": None}), [leaf])
    hidden = [fault for fault in result.faults if "which is hidden" in fault.detail]
    assert len(hidden) == {(True, False): 0, (True, True): 1, (False, False): 1, (False, True): 2}[shown, turned]


def test_a_hearing_under_way_convicts_no_service_and_one_without_a_ruling_does_once_it_is_over(
    new_market: NewMarket,
) -> None:
    market = traced(new_market)
    honest, _ = split(market)
    say(market, honest, root_of(honest, 3))
    end(market)
    (under_way,) = prove(market, show(market))
    assert (under_way.faults, under_way.checked) == ((), 0)
    assert "1 hearing still under way" in under_way.unseen
    market.lapse(HEARING_S + 1.0)
    market.play(honest)
    over = show(market)
    assert over.root is not None
    (held,) = over.hearings or ()
    (left,) = prove(market, over.model_copy(update={"hearings": (held.model_copy(update={"ruling": None}),)}))
    assert [fault.detail for fault in left.faults] == ["it has no ruling"]


def test_a_panel_s_hearing_under_way_at_the_end_of_its_job_convicts_no_service(new_market: NewMarket) -> None:
    market = traced(new_market, audit=TWO)
    differ(market)
    end(market)
    assert prove(market, show(market)) == []


def test_nothing_reveals_that_a_task_is_audited_while_its_panel_is_heard(new_market: NewMarket) -> None:
    """Neither the log nor the evidence nor an event, whose task anybody could then answer like its auditors."""
    market = traced(new_market, audit=TWO)
    ann, _ = differ(market)
    end(market)

    def list_told() -> list[bool]:
        with market.context.reading() as reader:
            kinds = {row.kind for row in reader.session.scalars(select(LogLeaf))}
        told = [*market.events("heard"), *market.events("auditor_barred")]
        named = [one for one in told if market.task().id in map(str, one.values())]
        return [bool(kinds & {"hearing", "answers", "ruling"}), bool(show(market).hearings), bool(named)]

    assert list_told() == [False] * 3
    receipt = answer_as_auditor(market, ann)
    assert judge(market, receipt, show(market)) == ("", UNDER_WAY)
    market.lapse(HEARING_S + 1.0)
    assert judge(market, receipt, show(market)) == ("", "")
    assert judge(market, receipt, show(market).model_copy(update={"hearings": ()})).fault
    with market.context.begin() as work:
        audit = work.get_one(Audit, market.task().id)
        assert audit.state == AuditState.PASSED
        audit.state = AuditState.DUE
    assert list_told() == [True] * 3, "what was told once is not taken back where the audit is opened again"


def list_task(number: int, attempt: int) -> PublishedTask:
    return PublishedTask(id=f"{number}-{attempt}", round=0, index=number, attempt=attempt, state=TaskState.FAILED,
                         used=False, merge_round=0)  # fmt: skip


@pytest.mark.parametrize(("attempts", "hidden"), [([0, 1, 2], 0), ([0, 2], 1), ([1], 1), ([0], 0)])
def test_an_attempt_that_is_left_out_is_found_by_the_numbers_of_the_others(attempts: list[int], hidden: int) -> None:
    listed = [list_task(0, attempt) for attempt in attempts] + [list_task(1, 0)]
    assert len(list(_find_hidden_attempts(cast(JobRecord, SimpleNamespace(tasks=listed))))) == hidden


def test_a_task_that_is_listed_as_cancelled_is_read_like_any_other(new_market: NewMarket, tmp_path: Path) -> None:
    """A service could list one whose hearing it hides so; an honest one's answers of earlier waves are no fault."""
    market = traced(new_market)
    split(market)
    end(market)
    evidence, read = show(market, 0), list[str]()

    def load(_job: str, task: str) -> PublishedEvidence:
        read.append(task)
        return evidence

    source = JobSource(
        cast(Any, SimpleNamespace(task=load)), cast(Any, None), JobId(market.job), tmp_path, lambda *_: None
    )
    listed = [list_task(0, 0).model_copy(update={"state": TaskState.CANCELLED})]
    assert list(source._fetch_evidence(listed)) == read == ["0-0"]


def test_what_a_cancelled_task_shows_of_earlier_waves_is_no_fault(new_market: NewMarket) -> None:
    market = new_market(replication={"name": "fixed", "replicas": 2, "max_replicas": 4})
    split(market)
    end(market)
    evidence = show(market)
    with market.context.reading() as reader:
        checks = jobs.load_publication(reader.get_one(Job, market.job)).checks
    assert (evidence.state, len(evidence.committed)) == (TaskState.CANCELLED, 2)
    assert list_case_faults(VerdictCase(market.context.domain, market.context.signer_address, checks, evidence)) == []


@pytest.mark.parametrize(("hidden", "run"), [("nothing", 2), ("a hearing", 2), ("an answer", 2), ("a hearing", 4)])
def test_hearings_of_one_pair_in_several_runs_of_a_panel_have_leaves_of_their_own(
    new_market: NewMarket, hidden: str, run: int
) -> None:
    """The second hearing's number is no hidden answer of the first one; any other number is.

    An audit that is opened again skips a run.
    """
    market = traced(new_market, audit=TWO)
    ann, _ = differ(market)
    answer_as_auditor(market, ann)
    market.lapse(HEARING_S + 1.0)
    market.drive()
    evidence = show(market)
    (held,) = evidence.hearings or ()
    assert held.run == 0
    again = held.model_copy(update={"questions": held.questions * 3, "run": run})
    named = evidence.offer_digest, *held.sides, again.run
    counted = (7, 7) if hidden == "an answer" else count_answers(again)
    leaves = [Hash(hash_leaf(data)) for data in (encode_hearing(*named), encode_answers(*named, *counted))]
    shown = (held,) if hidden == "a hearing" else (held, again)
    (result,) = prove(market, evidence.model_copy(update={"hearings": shown}), leaves)
    found = [fault.detail for fault in result.faults if "the log has" in fault.detail]
    expected = {"nothing": [], "a hearing": ["which is hidden"], "an answer": ["more answers"]}[hidden]
    assert [why in detail for why, detail in zip(expected, found, strict=True)] == [True] * len(expected)


def test_a_far_run_of_a_panel_keeps_no_auditor_at_work() -> None:
    """A service chooses the number: each run below it takes memory, and a hash for each pair of auditors."""
    seats = [PublishedSeat(signer=Address(f"0x{side:040x}"), run=1_000_000) for side in (1, 2)]
    shown = SimpleNamespace(audit=SimpleNamespace(panel=seats), committed=())
    assert len(list(_list_possible_hearings(cast(PublishedEvidence, shown)))) < 1_000


def test_a_referee_that_judged_other_classes_by_bits_or_held_too_little_is_found(heard: Heard) -> None:
    """Honest sides of two classes differ in their bits; and who holds no operation's values convicts no liar."""
    market, evidence = heard.market, heard.evidence
    (held,) = evidence.hearings or ()
    replicas = [one.model_copy(update={"determinism_class": f"class {n}"}) for n, one in enumerate(evidence.replicas)]
    apart = evidence.model_copy(update={"replicas": tuple(replicas)})

    def find_faults(shown: PublishedEvidence, **changes: Any) -> list[str]:
        told = shown.model_copy(update={"hearings": (held.model_copy(update=changes),)})
        return [fault.detail for result in prove(market, told) for fault in result.faults]

    assert find_faults(evidence) == find_faults(apart, across=True) == find_faults(evidence, across=False) == []
    assert "by their bits" in find_faults(apart, across=False)[0]
    assert "held 1 bytes" in find_faults(evidence, most_values=1)[0]
