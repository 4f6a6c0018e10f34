"""Several processes merge a round part by part: the digest of one process, and nothing left over, whatever befalls."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.gradient import payload_layout
from gradmarket.market.terms import Digest, JobState, RoundState
from requester.engine import run_once
from requester.features.part_merges import merge_part_rows, part_merge
from requester.features.part_merges.merge_part_rows import MergePart
from requester.moves import replay, snapshots
from requester.moves.ending import end_job
from requester.stages import aggregate, collect
from requester.store.locks import hold_named_lock
from requester.store.tables import Job, JobBlob, Round, UnneededBlob
from tests.kit.behaviour import scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import STAGES, MarketFixture
from tests.requester.test_snapshots import order_audit

NewMarket = Callable[..., MarketFixture]
ROUNDS = 5
ADAMW = {"name": "adamw", "lr": 0.1, "weight_decay": 0.1, "clip": 1.0}
LAMB = {"name": "lamb", "lr": 0.1, "clip": 1.0}
NESTEROV = {"name": "nesterov", "lr": 0.1}
ONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}, "rounds": ROUNDS}
SELDOM = {"snapshot_rounds": 3, "snapshot_s": 1e9}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_layout, "SHARD_ELEMENTS", 2)
    monkeypatch.setattr(part_merge, "_largest_part", lambda _context: 2)
    monkeypatch.setattr(snapshots, "SMALL", 0)


def shared(market: MarketFixture) -> MarketFixture:
    """The market, with its merges spread over processes."""
    market.settings = market.settings.model_copy(update={"stages": "celery", "merge_spread": 0})
    market.context = replace(market.context, settings=market.settings)
    market.stages = (*STAGES, part_merge)
    return market


def played(market: MarketFixture) -> str:
    market.worker()
    market.play(passes=200)
    assert market.state() == JobState.FINISHED, market.why_waiting()
    return market.final_parameters()


def in_pieces(market: MarketFixture, done: int) -> Callable[[], bool]:
    """Returns whether `done` parts of a merge are done, and others are not."""

    def there() -> bool:
        rows = market.all(MergePart)
        results = [row.result for row in rows if row.result != ""]
        return None in results and sum(one is not None for one in results) >= done

    return there


def begun(new_market: NewMarket) -> MarketFixture:
    """Its first merge is spread, and none of its parts is done."""
    market = shared(new_market(settings=SELDOM, optimizer=NESTEROV, **ONE))
    market.worker()
    market.stages = STAGES
    market.until(in_pieces(market, 0))
    return market


def do_one(market: MarketFixture) -> None:
    with market.context.reading() as reader:
        first, *_ = part_merge.ready(reader, 0.0)
    run_once(market.context, part_merge, first)


def blobs_of(market: MarketFixture) -> set[str]:
    return {f"blake3:{path.name}" for path in (market.folder / "blobs").glob("??/*")}


def named(market: MarketFixture) -> set[Any]:
    rounds = {digest for row in market.rounds() for digest in (row.parameters, row.updated, row.optimizer_state)}
    return rounds | {row.digest for row in market.all(JobBlob)} | {task.payload for task in market.tasks()}


@pytest.mark.parametrize("optimizer", leave_to_full([ADAMW, LAMB, NESTEROV]), ids=lambda chosen: str(chosen["name"]))
def test_parts_give_the_digests_of_one_process_and_leave_nothing(
    new_market: NewMarket, optimizer: dict[str, Any]
) -> None:
    alone, several = (new_market(settings=SELDOM, optimizer=optimizer, **ONE) for _ in range(2))
    assert played(alone) == played(shared(several))
    told = [[(row.updated, row.loss, row.optimizer_state) for row in market.rounds()] for market in (alone, several)]
    assert told[0] == told[1]
    several.lapse(collect.LEFT_S + 1)
    several.drive()
    assert several.all(MergePart) == several.all(UnneededBlob) == []
    assert blobs_of(several) <= named(several)


def test_a_merge_in_parts_is_begun_in_parts(new_market: NewMarket) -> None:
    market = shared(new_market(settings=SELDOM, optimizer=ADAMW, **ONE))
    market.worker()
    market.stages = STAGES
    market.until(lambda: len(market.all(MergePart)) > 0)
    assert [(row.step, row.start, row.stop) for row in market.all(MergePart)] == [
        (False, 0, 1),
        (False, 1, 5),
        (False, 5, 7),
    ]
    for _ in range(3):
        do_one(market)
    run_once(market.context, aggregate, market.job)
    rows = [(row.start, row.stop) for row in market.all(MergePart) if row.step]
    assert rows == [(0, 2), (2, 4), (4, 6), (6, 7)]


def test_a_part_that_a_process_does_is_not_asked_for_again(new_market: NewMarket) -> None:
    market = begun(new_market)
    with market.context.reading() as reader:
        first, second, *_ = part_merge.ready(reader, 0.0)
    with hold_named_lock(market.context.sessions, f"parts {first}") as mine, market.context.reading() as reader:
        assert mine
        shared_by_processes = market.context.sessions.kw["bind"].dialect.name == "postgresql"
        assert part_merge.ready(reader, 0.0)[0] == (second if shared_by_processes else first)
    with market.context.reading() as reader:
        assert part_merge.ready(reader, 0.0)[0] == first


@FULL
def test_a_job_below_the_size_is_merged_by_one_process(new_market: NewMarket) -> None:
    market = shared(new_market(settings=SELDOM, optimizer=ADAMW, **ONE))
    settings = market.settings.model_copy(update={"merge_spread": 1 << 30})
    market.context = replace(market.context, settings=settings)
    market.stages = STAGES
    played(market)


@FULL
@pytest.mark.parametrize("aggregator", [{"name": "krum", "hostile": 0}])
def test_an_aggregator_that_compares_answers_stays_with_one_process(
    new_market: NewMarket, aggregator: dict[str, Any]
) -> None:
    market = shared(new_market(optimizer=ADAMW, **{**ONE, "tasks_per_round": 3, "aggregator": aggregator}))
    market.stages = STAGES
    played(market)


@FULL
@pytest.mark.parametrize("done", [0, 1, 3])
def test_a_process_that_dies_in_the_middle_changes_nothing(new_market: NewMarket, done: int) -> None:
    alone = played(new_market(settings=SELDOM, optimizer=NESTEROV, **ONE))
    market = begun(new_market)
    for _ in range(done):
        do_one(market)
    market.crash()
    market.stages = (*STAGES, part_merge)
    assert played(market) == alone


@FULL
def test_a_message_that_comes_twice_or_late_changes_nothing(new_market: NewMarket) -> None:
    market = begun(new_market)
    first = market.all(MergePart)[0]
    run_once(market.context, part_merge, str(first.id))
    once = market.all(MergePart)[0].result
    run_once(market.context, part_merge, str(first.id))
    assert market.all(MergePart)[0].result == once
    market.stages = (*STAGES, part_merge)
    market.until(lambda: market.rounds()[0].state == RoundState.CLOSED)
    run_once(market.context, part_merge, str(first.id))
    run_once(market.context, part_merge, "999999")
    assert played(market) == played(new_market(settings=SELDOM, optimizer=NESTEROV, **ONE))


@FULL
def test_blobs_of_a_part_whose_job_ended_are_deleted(new_market: NewMarket) -> None:
    market = begun(new_market)
    row, before = market.all(MergePart)[0], blobs_of(market)
    with market.context.begin() as work:
        end_job(market.context, work, work.get_one(Job, market.job), JobState.CANCELLED, "enough")
    part_merge._store_part(market.context, row, [b"its result"], [b"its memory"], None)
    assert len(blobs_of(market) - before) == 2
    market.lapse(collect.LEFT_S + 1)
    market.drive()
    assert market.all(MergePart) == market.all(UnneededBlob) == []
    assert blobs_of(market) <= before


@FULL
def test_one_process_replays_where_a_part_of_the_memory_is_gone(new_market: NewMarket) -> None:
    alone = played(new_market(settings=SELDOM, optimizer=NESTEROV, **ONE))
    market = shared(new_market(settings=SELDOM, optimizer=NESTEROV, **ONE))
    market.worker()
    market.until(lambda: len(market.rounds()) == 3)
    (memory, *_) = [row.memory for row in market.all(MergePart) if row.memory]
    market.context.blobs.drop(Digest(memory))
    assert played(market) == alone
    assert market.events("merge_failed") == []


@FULL
def test_one_process_merges_where_a_part_goes_during_the_merge(new_market: NewMarket) -> None:
    alone = played(new_market(settings=SELDOM, optimizer=NESTEROV, **ONE))
    market = shared(new_market(settings=SELDOM, optimizer=NESTEROV, **ONE))
    market.worker()
    market.until(lambda: len(market.rounds()) == 3)
    market.stages = STAGES
    market.until(in_pieces(market, 0))
    for digest in {row.memory for row in market.all(MergePart) if row.memory}:
        market.context.blobs.drop(Digest(digest))
    with market.context.reading() as reader:
        first, *_ = part_merge.ready(reader, 0.0)
    with pytest.raises(NotFound):
        part_merge.compute_part(market.context, int(first))
    assert market.all(MergePart) == []
    market.stages = (*STAGES, part_merge)
    assert played(market) == alone


def ended(market: MarketFixture, *, drops: bool) -> None:
    with market.context.begin() as work:
        end_job(market.context, work, work.get_one(Job, market.job), JobState.CANCELLED, "enough")
    for task in market.tasks() if drops else ():
        if task.payload:
            market.context.blobs.drop(Digest(task.payload))


@pytest.fixture
def every_level() -> Iterator[None]:
    """Lines of every level: a test before this one may have configured the process for warnings alone."""
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**before)


@FULL
@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("drops", [False, True])
def test_a_part_that_comes_after_the_jobs_end_ends_with_a_line(new_market: NewMarket, drops: bool) -> None:
    market = begun(new_market)
    first = market.all(MergePart)[0]
    ended(market, drops=drops)
    with capture_logs() as logged:
        assert run_once(market.context, part_merge, str(first.id)) is None
    (line,) = (one for one in logged if one["log_level"] != "debug")
    assert (line["log_level"], line["job"], line["round"]) == ("info", market.job, 0)
    assert "has ended" in line["event"]
    assert market.all(MergePart)[0].result is None


@pytest.mark.usefixtures("every_level")
def test_a_job_that_ends_during_a_part_ends_it_with_a_line(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    market = begun(new_market)
    first, opened = market.all(MergePart)[0], replay.MergeInputs.opened

    def ends_now(inputs: replay.MergeInputs, *arguments: Any) -> Any:
        ended(market, drops=True)
        return opened(inputs, *arguments)

    monkeypatch.setattr(replay.MergeInputs, "opened", ends_now)
    with capture_logs() as logged:
        assert run_once(market.context, part_merge, str(first.id)) is None
    assert not [line for line in logged if line["log_level"] in ("warning", "error")]
    assert "has ended" in logged[-2]["event"] or "has ended" in logged[-1]["event"]
    assert market.all(MergePart) == []


@FULL
def test_a_round_that_is_taken_back_leaves_no_part(new_market: NewMarket) -> None:
    """Rounds 0 to 2 are merged in parts from colluders' answers, taken back, and merged again from honest ones."""
    market = shared(new_market(rounds=5, audit={"probability": 1e-9, "on_failure": "replay"}, optimizer=NESTEROV))
    market.worker(scaled(3.0)), market.worker(scaled(3.0)), market.worker()
    market.until(lambda: len(market.rounds()) == 4)
    old = {row.id for row in market.all(MergePart)}
    assert old
    order_audit(market, 2)
    SimAuditor(market).work()
    for _ in range(3):
        market.worker()
    SimAuditor(market).play()
    assert (market.state(), market.events("merge_failed")) == (JobState.FINISHED, [])
    market.lapse(collect.LEFT_S + 1)
    market.drive()
    assert market.all(MergePart) == market.all(UnneededBlob) == []
    assert blobs_of(market) <= named(market)
    assert all(row.state in (RoundState.CLOSED, RoundState.REWOUND) for row in market.all(Round))


@FULL
def test_parts_that_two_processes_ask_for_are_asked_for_once(new_market: NewMarket) -> None:
    """Twice as many would be joined to parameters of twice the length, and the round would never close."""
    alone = played(new_market(settings=SELDOM, optimizer=ADAMW, **ONE))
    market = shared(new_market(settings=SELDOM, optimizer=ADAMW, **ONE))
    market.worker()
    market.stages = STAGES
    market.until(in_pieces(market, 0))
    with market.reading() as reader:
        job, row = reader.get_one(Job, market.job), reader.get_one(Round, (market.job, 0))
        inputs = replay.inputs_of(reader, job, row)
    for step in (False, True, True):
        part_merge._request_parts(market.context, market.job, inputs, step, None)
    asked = [(row.step, row.start, row.stop) for row in market.all(MergePart)]
    assert len(asked) == len(set(asked))
    with market.context.begin() as work:
        for part in merge_part_rows.of_round(work, market.job, 0):
            if part.step:  # asked for without its factor
                work.session.delete(part)
    market.stages = (*STAGES, part_merge)
    assert played(market) == alone


@FULL
def test_a_failing_part_is_the_job_s_reason_until_it_is_merged(new_market: NewMarket) -> None:
    market = begun(new_market)
    payload = Digest(market.tasks()[0].payload or "")
    (path,) = (market.folder / "blobs").glob(f"??/{payload.removeprefix('blake3:')}")
    whole = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(whole[:8])
    with market.context.reading() as reader:
        first, *_ = part_merge.ready(reader, 0.0)
    for _ in range(2):
        assert run_once(market.context, part_merge, first) == market.settings.sweep_s
    assert "the newest round cannot be merged" in market.why_waiting()
    assert len(market.events("merge_failed")) == 1, "told once"
    path.write_bytes(whole)
    market.stages = (*STAGES, part_merge)
    played(market)
    assert market.the_job().reason == "all rounds are done"


@FULL
def test_a_memory_whose_parts_are_gone_is_not_that_of_the_first_round(new_market: NewMarket) -> None:
    """As where a process that lost its lock stores a snapshot while another has merged the next round."""
    market = shared(new_market(settings=SELDOM, optimizer=NESTEROV, **ONE))
    market.worker()
    market.until(lambda: len(market.rounds()) == 3)
    assert market.rounds()[1].state == RoundState.CLOSED
    part_merge.join_memory(market.context, market.job, 1)
    with pytest.raises(Conflict, match="another process"):
        part_merge.join_memory(market.context, market.job, 0)
