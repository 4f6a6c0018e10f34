"""A job that continues another has the bits of a job that simply ran longer; and jobs that it may not continue."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import Continued
from gradmarket.market.rules.stopping import StopAtDate, StopAtMetric
from gradmarket.market.terms import Digest, JobState
from requester.features.continuing import continued_jobs
from requester.moves import snapshots
from requester.stages import collect
from requester.store import ready_rows
from requester.store.tables import Job, Round
from tests.kit.behaviour import scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.market_fixture import LAYOUT, STAGES, MarketFixture

NewMarket = Callable[..., MarketFixture]
ALONE: dict[str, Any] = {
    "tasks_per_round": 2,
    "replication": {"name": "fixed", "replicas": 1, "max_replicas": 1},
    "optimizer": {"name": "adamw", "lr": 0.1, "weight_decay": 0.1, "schedule": {"name": "constant", "warmup": 4}},
}
CASES: dict[str, dict[str, Any]] = {
    "rounds": {},
    "epochs": {"sampling": "epochs"},
    "downlink": {"downlink": {"codec": "two_bit", "first": {"codec": "int4", "rounds": 3}}},
    "local": {"step": {"kind": "local", "rows": 1, "steps": 2, "optimizer": {"name": "sgd", "lr": 0.5}}},
}
FIRST, SECOND, THIRD = (f"00000000000000{name}" for name in ("aa", "bb", "cc"))


def updates(market: MarketFixture, job: str) -> list[tuple[str | None, float | None]]:
    rows = market.all(Round, Round.job_id == job)
    return [(row.updated, row.loss) for row in sorted(rows, key=lambda row: row.number)]


def finish(market: MarketFixture, job: str) -> None:
    """With a worker of the job's own."""
    market.job = job
    market.worker().capacity = 2

    def done() -> bool:
        (row,) = market.all(Job, Job.id == job)
        return bool(row.state == JobState.FINISHED and row.replay_from is None)

    market.until(done, market.workers[-1])


@pytest.mark.parametrize("kind", leave_to_full(list(CASES)))
def test_rounds_in_three_jobs_have_the_bits_of_rounds_in_one(new_market: NewMarket, kind: str) -> None:
    """The warm-up ends, and the downlink's codec changes, in a later job than they begin."""
    spec = ALONE | CASES[kind]
    whole, parts = new_market(rounds=7, **spec), new_market(rounds=2, **spec)
    for market in (whole, parts):
        finish(market, FIRST)
    parts.also(SECOND, 8, rounds=1, continue_from=FIRST, **spec)
    finish(parts, SECOND)
    parts.also(THIRD, 9, rounds=4, continue_from={"job": SECOND}, **spec)
    finish(parts, THIRD)
    told = [one for job in (FIRST, SECOND, THIRD) for one in updates(parts, job)]
    assert told == updates(whole, FIRST)


@FULL
def test_a_job_that_only_took_the_parameters_has_other_bits(new_market: NewMarket) -> None:
    """The twin: without the optimizer's memory, or the place in the order, it is not the longer job."""
    whole, parts = new_market(rounds=4, **ALONE), new_market(rounds=2, **ALONE)
    for market in (whole, parts):
        finish(market, FIRST)
    assert updates(parts, FIRST) == updates(whole, FIRST)[:2]
    parts.also(SECOND, 8, rounds=2, **ALONE)
    with parts.context.begin() as work:
        row = work.get_one(Round, (SECOND, 0))
        row.parameters = Digest(updates(parts, FIRST)[-1][0] or "")
    finish(parts, SECOND)
    assert updates(parts, SECOND) != updates(whole, FIRST)[2:]


@FULL
def test_a_finished_job_keeps_one_state_and_a_killed_one_makes_it_anew(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service ends after the last round is closed and before its state is stored: the rounds are merged again."""
    monkeypatch.setattr(snapshots, "SMALL", 0)
    monkeypatch.setattr(snapshots, "store_snapshot", lambda *_: None)
    market = new_market(rounds=3, settings={"snapshot_rounds": 9, "snapshot_s": 1e9}, **ALONE)
    market.stages = tuple(stage for stage in STAGES if stage is not collect)
    market.worker().capacity = 2
    market.until(lambda: market.state() == JobState.FINISHED)
    assert [row.optimizer_state for row in market.rounds()] == ["", "", ""]
    monkeypatch.undo()
    market.crash()
    market.stages = STAGES
    market.drive()
    states = [row.optimizer_state for row in market.rounds()]
    assert states[:2] == ["", ""]
    assert market.context.blobs.has(states[2])
    other = new_market(rounds=3, **ALONE)
    finish(other, FIRST)
    assert [row.optimizer_state for row in other.rounds()] == states


def test_a_job_that_cannot_be_continued_is_refused_with_the_remedy(new_market: NewMarket) -> None:
    market = new_market(rounds=2, **ALONE)
    spec = JobSpec.model_validate(market._spec(rounds=1, continue_from=FIRST, **ALONE))
    with market.context.reading() as reader:
        assert continued_jobs.find_start(reader, spec) is None, "it goes on"
    with pytest.raises(JobRefused, match="another token posted job"):
        continued_jobs.check_continued(market.context, spec, "somebody")
    continued_jobs.check_continued(market.context, spec, "requester")
    finish(market, FIRST)
    other = spec.model_copy(update={"optimizer": spec.optimizer.model_copy(update={"name": "sgd"})})
    with pytest.raises(JobRefused, match="keeps the state of adamw: name that optimizer"):
        continued_jobs.check_continued(market.context, other, "requester")
    nowhere = spec.model_copy(update={"continue_from": Continued(job=THIRD)})
    with pytest.raises(JobRefused, match=f"there is no job {THIRD}"):
        continued_jobs.check_continued(market.context, nowhere, "requester")
    with market.context.reading() as reader:
        start = continued_jobs.find_start(reader, spec)
        assert start is not None
        assert start.continue_from is not None
        blobs, named = market.context.blobs, start.continue_from
        wider = Layout((*LAYOUT.entries[:1], LayoutEntry("w", (5,), "gradient"), LAYOUT.entries[2]))
        with pytest.raises(JobRefused, match="other tensors than that of job"):
            continued_jobs.check_state_fits(reader, blobs, named, wider, {})
        with pytest.raises(JobRefused, match="keeps another state than in job"):
            continued_jobs.check_state_fits(reader, blobs, named, LAYOUT, {})


def test_more_rounds_that_a_stop_rule_ends_at_once_are_refused(new_market: NewMarket) -> None:
    market = new_market(rounds=2, **ALONE)
    finish(market, FIRST)
    spec = JobSpec.model_validate(market._spec(rounds=1, continue_from=FIRST, **ALONE))
    continued_jobs.check_continued(market.context, spec, "requester")
    with market.context.begin() as work:
        work.get_one(Round, (FIRST, 1)).metrics = {"auc": 0.95}
    for rule, over in (
        (StopAtMetric(metric="auc", at=0.9), True),
        (StopAtMetric(metric="auc", at=0.99), False),
        (StopAtMetric(metric="auc", at=0.99, better="lower"), True),
        (StopAtDate(date=datetime.fromtimestamp(market.clock() - 1, UTC)), True),
        (StopAtDate(date=datetime.fromtimestamp(market.clock() + 9, UTC)), False),
    ):
        ruled = spec.model_copy(update={"stop": (rule,)})
        if over:
            with pytest.raises(JobRefused, match=r"already by 0\.95: POST /v1/jobs|has passed: POST"):
                continued_jobs.check_continued(market.context, ruled, "requester")
        else:
            continued_jobs.check_continued(market.context, ruled, "requester")


def draft(market: MarketFixture, job: str, **changes: Any) -> None:
    spec = JobSpec.model_validate(market._spec(rounds=1, **changes, **ALONE))
    money = {"unit": "1", "price": 1, "budget": 1}
    with market.context.begin() as work:
        fields = {"token": "requester", "secret": bytes(32), "created_at": market.clock(), **money}
        work.add(Job(id=job, state=JobState.DRAFT, spec=spec.model_dump(mode="json"), **fields))


def drafts(market: MarketFixture) -> list[str]:
    with market.context.reading() as reader:
        return list(ready_rows.list_drafts(reader))


@FULL
def test_drafts_that_wait_for_a_job_keep_none_from_being_published(new_market: NewMarket) -> None:
    """One token's extensions of a job that goes on filled the list of 256 drafts, the oldest first."""
    market = new_market(rounds=2, **ALONE)
    waiting = [f"{number:016x}" for number in range(0x1000, 0x1000 + ready_rows.MOST + 2)]
    for job in waiting:
        draft(market, job, continue_from=FIRST)
    draft(market, SECOND)
    assert drafts(market) == [SECOND]
    finish(market, FIRST)
    assert set(drafts(market)) <= {SECOND, *waiting}
    assert len(drafts(market)) == ready_rows.MOST
    last = max(market.rounds(), key=lambda row: row.number)
    for replayed, state, ready in ((1, "", False), (None, "", True), (1, last.optimizer_state, True)):
        with market.context.begin() as work:
            work.get_one(Job, FIRST).replay_from = replayed
            work.get_one(Round, (FIRST, last.number)).optimizer_state = Digest(state)
        assert (drafts(market) != [SECOND]) is ready, (replayed, state)
    with market.context.begin() as work:
        job = work.get_one(Job, FIRST)
        job.state, job.replay_from = JobState.CANCELLED, 1
    assert len(drafts(market)) == ready_rows.MOST, "each is refused now"


def test_a_job_that_was_called_off_is_not_continued(new_market: NewMarket) -> None:
    market = new_market(rounds=9, **ALONE)
    market.worker(scaled(1.0)).capacity = 2
    market.until(lambda: len(market.rounds()) == 3)
    market.cancel()
    spec = JobSpec.model_validate(market._spec(rounds=1, continue_from=FIRST, **ALONE))
    with pytest.raises(JobRefused, match="is cancelled and never finished: post its newest parameters"):
        continued_jobs.check_continued(market.context, spec, "requester")


def test_a_private_job_with_a_budget_cannot_be_continued() -> None:
    private = {"inputs": {"x": {"dtype": "float32"}}, "holders": ["0x" + "1" * 40]}
    fields = {"name": "n", "model": {"architecture": "mlp"}, "data": private, "step": {"rows": 1}, "rounds": 1}
    fields |= {"optimizer": {"name": "sgd", "lr": 0.1}, "price": "1", "continue_from": FIRST}
    assert JobSpec.model_validate(fields).continue_from is not None
    privacy = {"epsilon": 9.0, "delta": 1e-6, "noise_multiplier": 1.0}
    with pytest.raises(ValidationError, match="would not be counted: leave out privacy"):
        JobSpec.model_validate(fields | {"privacy": privacy})
