"""A task in windows: its answer is that of the whole task, and two of them show an auditor the left-out work."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from eth_keys.datatypes import PrivateKey

from gradmarket.auditor import Auditor
from gradmarket.client import RequesterClient
from gradmarket.compute.cache import Cache
from gradmarket.compute.executor import Executor
from gradmarket.compute.task_run import Compute, Windowed, layout_of
from gradmarket.market.errors import Refused, RunnerCrashed, TensorsRefused
from gradmarket.market.features import windows as task_windows
from gradmarket.market.features.windows import StateRequest
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.messages import Offer
from gradmarket.market.step import Step, WindowStep
from gradmarket.market.terms import Amount, Digest, JobId, ReplicaId, ReplicaState, TaskId, blob_digest
from gradmarket.market.wire.audit_messages import AuditWork, WindowTask
from gradmarket.market.wire.poll import OfferFields, digest_of, hash_of
from gradmarket.runner import Runner, window_state
from gradmarket.sealing import SealingKey
from graphdoc import tensors
from graphdoc.encoding import Bytes
from tests.lanes import leave_to_full
from tests.patience import wait_until
from tests.worker.conftest import MakeContext, MakeExecutor, offer
from tests.worker.fake_market import FakeMarket
from worker.features.windows import AT_ONCE, MOST_TRIES, WindowStates
from worker.markets.loop import Loop
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlightFolder
from worker.protocol.policy import WorkLimits

LIMITS = WorkLimits(frozenset(), Amount(1), 1, 1, 60.0, max_flops=1e9, max_memory=2**30)
STEPS, WINDOW, LEAVES = 7, 2, 3
ADAMW = {"name": "adamw", "lr": 0.01, "schedule": {"name": "cosine", "warmup": 3}}


def local(publication: Publication, **changes: Any) -> Publication:
    step = {"kind": "local", "steps": STEPS, "rows": 2, "microbatch": 1, "rewarm": 2, "optimizer": ADAMW}
    spec = publication.spec.model_dump(mode="json") | {"step": step | changes, "audit": {"probability": 0.5}}
    return publication.model_copy(update={"spec": JobSpec.model_validate(spec)})


@pytest.fixture
def publication(publication: Publication) -> Publication:
    return local(publication, window=WINDOW)


@pytest.fixture
def state_cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "windows", 2**24)


@pytest.fixture
def worker(make_executor: MakeExecutor, state_cache: Cache) -> Executor:
    return make_executor(LIMITS, None, state_cache)


def leaves_in(payload: bytes) -> list[Digest]:
    end = payload[-32 * LEAVES :]
    return [digest_of(end[start : start + 32]) for start in range(0, 32 * LEAVES, 32)]  # type: ignore[arg-type]


def replayed(
    executor: Executor,
    publication: Publication,
    blobs: dict[Digest, bytes],
    served: Executor,
    payload: bytes,
    drawn: int,
) -> bytes:
    """Returns an auditor's answer, given the accepted leaves but the one it has to find, and its states."""
    leaves = leaves_in(payload)
    for number in task_windows.list_needed_windows(drawn, LEAVES):
        state = served.window_state(publication, offer(publication), leaves[number - 1])
        blobs[blob_digest(state)] = state
    told = [None if number == drawn else leaf for number, leaf in enumerate(leaves)]
    return executor.replay(publication, offer(publication), drawn, told)[0]


def test_the_answer_is_that_of_the_whole_task_and_its_leaves(
    worker: Executor, make_executor: MakeExecutor, state_cache: Cache, publication: Publication
) -> None:
    payload, _ = worker.work(publication, offer(publication))
    whole, _ = make_executor(LIMITS).work(local(publication), offer(local(publication)))
    assert payload[: -32 * LEAVES] == whole
    assert len(set(leaves_in(payload))) == LEAVES
    for number, leaf in enumerate(leaves_in(payload), 1):
        state = state_cache.read(leaf)
        assert state is not None
        assert blob_digest(state) == leaf
        assert f"[{number * WINDOW}]".encode() in bytes(state)  # the losses so far


@pytest.mark.parametrize("drawn", leave_to_full(range(LEAVES)))
def test_an_audit_of_any_window_finds_the_honest_answer(
    worker: Executor, make_executor: MakeExecutor, blobs: dict[Digest, bytes], publication: Publication, drawn: int
) -> None:
    payload, _ = worker.work(publication, offer(publication))
    assert replayed(make_executor(LIMITS), publication, blobs, worker, payload, drawn) == payload


def test_an_audit_computes_two_windows(
    worker: Executor, make_executor: MakeExecutor, runner: Runner, blobs: dict[Digest, bytes], publication: Publication
) -> None:
    moved: list[int] = []

    def counting(state: Arrays, batch: Arrays, seed: bytes, step: Step) -> dict[str, np.ndarray]:
        moved.append(step.moves)
        return runner.compute(state, batch, seed, step)

    payload, _ = worker.work(publication, offer(publication))
    replayed(make_executor(LIMITS, counting), publication, blobs, worker, payload, 1)
    assert moved == [2, 1]
    assert sum(moved) / STEPS == task_windows.compute_repeated_share(STEPS, WINDOW)


def lazy(compute: Compute, window: int) -> Compute:
    """Leaves out one window: it commits to the state before it as if that were the one after it."""

    def skipping(state: Arrays, batch: Arrays, seed: bytes, step: Step) -> dict[str, np.ndarray]:
        honest = compute(state, batch, seed, step)
        if not isinstance(step, WindowStep) or step.begins != window * WINDOW:
            return honest
        return {name: array if name == window_state.LOSSES else state[name] for name, array in honest.items()}

    return skipping


@pytest.mark.parametrize("skipped", leave_to_full(range(LEAVES + 1)))
def test_a_cheat_in_one_window_is_found_where_that_one_is_drawn_and_in_the_last_always(
    make_executor: MakeExecutor,
    runner: Runner,
    state_cache: Cache,
    blobs: dict[Digest, bytes],
    publication: Publication,
    skipped: int,
) -> None:
    cheat = make_executor(LIMITS, lazy(runner.compute, skipped), state_cache)
    payload, _ = cheat.work(publication, offer(publication))
    auditor, answers = make_executor(LIMITS), []
    for drawn in range(LEAVES):
        answers.append(replayed(auditor, publication, blobs, cheat, payload, drawn) != payload)
    assert answers == [drawn == skipped or skipped == LEAVES for drawn in range(LEAVES)]
    assert sum(answers) / LEAVES == (1.0 if skipped == LEAVES else task_windows.compute_detection_rate(1, LEAVES))
    assert auditor.work(publication, offer(publication))[0] != payload


def test_a_state_that_was_not_kept_is_computed_anew_and_no_other_is_given(
    worker: Executor, make_executor: MakeExecutor, tmp_path: Path, publication: Publication
) -> None:
    payload, _ = worker.work(publication, offer(publication))
    small = make_executor(LIMITS, None, Cache(tmp_path / "small", 100))
    assert small.work(publication, offer(publication))[0] == payload
    for leaf in leaves_in(payload):
        assert blob_digest(small.window_state(publication, offer(publication), leaf)) == leaf
    for executor, published in ((small, publication), (worker, publication), (worker, local(publication))):
        with pytest.raises(Refused, match="no state"):
            executor.window_state(published, offer(published), publication.parameters)


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "a byte less": lambda state: state[:-1],
    "parameters": lambda state: state.replace(b"state/", b"stale/"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_state_of_another_form_is_refused(
    worker: Executor, make_executor: MakeExecutor, blobs: dict[Digest, bytes], publication: Publication, what: str
) -> None:
    """A worker may commit to any bytes."""
    payload, _ = worker.work(publication, offer(publication))
    leaves: list[Digest | None] = [*leaves_in(payload)]
    state = worker.window_state(publication, offer(publication), leaves[0] or publication.parameters)
    spoiled = SPOILED[what](bytes(state))
    blobs[blob_digest(spoiled)] = spoiled
    told = [blob_digest(spoiled), None, leaves[2]]
    with pytest.raises(TensorsRefused):
        make_executor(LIMITS).replay(publication, offer(publication), 1, told)
    for missing in ([None, None, leaves[2]], [*leaves, leaves[0]]):
        with pytest.raises(Refused):
            make_executor(LIMITS).replay(publication, offer(publication), 1, missing)


@pytest.mark.parametrize("steps", [-1, -5, WINDOW + 1, 2**63 - 1])
def test_a_state_whose_optimizer_counts_steps_that_cannot_be_is_refused(
    worker: Executor, make_executor: MakeExecutor, blobs: dict[Digest, bytes], publication: Publication, steps: int
) -> None:
    """With -1 the next step divides by zero, with fewer a power is computed without end: no audit would ever end."""
    payload, _ = worker.work(publication, offer(publication))
    leaves: list[Digest | None] = [*leaves_in(payload)]
    arrays = tensors.unpack_tensors(
        worker.window_state(publication, offer(publication), leaves[0] or publication.parameters)
    )
    spoiled = tensors.pack_tensors(arrays | {"memory/steps": np.array(steps, np.int64)})
    blobs[blob_digest(spoiled)] = spoiled
    with pytest.raises(TensorsRefused):
        make_executor(LIMITS).replay(publication, offer(publication), 1, [blob_digest(spoiled), None, leaves[2]])
    layout = layout_of(publication, worker._load_document(publication))
    with pytest.raises(TensorsRefused):
        window_state.check_packed_state(spoiled, layout, publication.spec.step, WINDOW)


def test_where_no_step_goes_on_from_a_worker_s_state_the_whole_task_is_audited(
    worker: Executor, make_executor: MakeExecutor, runner: Runner, blobs: dict[Digest, bytes], publication: Publication
) -> None:
    """Else the audit would never end, and the job would wait for it for ever."""
    payload, _ = worker.work(publication, offer(publication))
    crashes = iter([True])

    def crashing_once(state: Arrays, batch: Arrays, seed: bytes, step: Step) -> dict[str, np.ndarray]:
        if next(crashes, False):
            raise RunnerCrashed("it was")
        return runner.compute(state, batch, seed, step)

    executor, market = make_executor(LIMITS, crashing_once), RequesterClient("http://127.0.0.1:9")
    sealing = SealingKey("auditor", PrivateKey(b"\1" * 32))
    auditor = Auditor("auditor", market, runner, executor._fetcher, executor._limits, sealing)
    auditor._bench, auditor._publications[publication.job] = executor, publication
    fields = OfferFields.of(replace(offer(publication), spec=hash_of(publication.digest)))
    window = WindowTask(window=0, leaves=(None, *leaves_in(payload)[1:]))
    last = worker.window_state(publication, offer(publication), leaves_in(payload)[-1])
    blobs[blob_digest(last)] = last
    work = AuditWork(task=TaskId("t"), job=publication.job, offer=fields, run=0, seconds=1.0, window=window)
    assert auditor._compute_answer(work, first=True)[0] == payload
    assert next(crashes, None) is None


def test_the_cost_of_windows_counts_against_the_limits(make_executor: MakeExecutor, publication: Publication) -> None:
    plain, cut = (make_executor(LIMITS).effort(one).flops for one in (local(publication), publication))
    assert plain == cut
    with pytest.raises(Refused, match="operations"):
        make_executor(replace(LIMITS, max_flops=1.0)).replay(publication, offer(publication), 0, [None, None, None])


@pytest.fixture
def done(fake_market: FakeMarket, make_context: MakeContext) -> tuple[WorkerContext, InFlightFolder]:
    """A worker that one task was leased to, and paid for."""
    fake_market.most = 1
    context = make_context(fake_market)
    folder = InFlightFolder(context.settings.data / "held")
    loop = Loop(context, folder)
    for _ in range(30):
        loop.turn()
        if all(row.heard for row in fake_market.rows.values()):
            break
    assert [row.state for row in fake_market.rows.values()] == [ReplicaState.PAYABLE]
    return context, folder


def asked_for(fake_market: FakeMarket, digest: Digest, replica: str | None = None) -> None:
    own = next(iter(fake_market.rows))
    wanted = StateRequest(replica=ReplicaId(replica or own), job=JobId("0" * 16), number=1, digest=digest, seconds=9.0)
    fake_market.audited = [wanted.model_copy(update={"job": JobId(fake_market.publication.job)})]


def leaves_of_the_task(context: WorkerContext, fake_market: FakeMarket) -> list[Digest]:
    (row,) = fake_market.rows.values()
    published = context.view(JobId(fake_market.publication.job)).publication
    assert published is not None
    return leaves_in(context.executor.work(published, row.offer)[0])


def test_a_worker_brings_the_states_of_what_it_computed_after_it_was_paid(
    fake_market: FakeMarket, done: tuple[WorkerContext, InFlightFolder]
) -> None:
    context, folder = done
    assert folder.held == {}
    assert context.executor.windowed.waits_s == 90
    for leaf in leaves_of_the_task(context, fake_market):
        asked_for(fake_market, leaf)
        assert WindowStates(context, folder).turn() == 1
        assert blob_digest(fake_market.brought[leaf]) == leaf


def test_a_worker_computes_little_for_a_market_that_asks_for_more(
    fake_market: FakeMarket, done: tuple[WorkerContext, InFlightFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that it never held, and again and again a state that its task does not have."""
    context, folder = done
    (leaf, *_) = leaves_of_the_task(context, fake_market)
    computed: list[Digest] = []
    own = context.executor.window_state

    def counting(published: Publication, asked: Offer, digest: Digest) -> bytes:
        computed.append(digest)
        return own(published, asked, digest)

    monkeypatch.setattr(context.executor, "window_state", counting)
    states = WindowStates(context, folder)
    asked_for(fake_market, leaf, "another")
    assert states.turn() == 0
    assert computed == []
    asked_for(fake_market, fake_market.publication.parameters)
    assert [states.turn() for _ in range(10)] == [0] * 10
    assert computed == [fake_market.publication.parameters] * MOST_TRIES
    assert fake_market.brought == {}
    said = (context.settings.data / "journal").read_text()
    assert "no record" in said
    assert "no state" in said


def test_names_without_number_fill_no_memory(
    fake_market: FakeMarket, done: tuple[WorkerContext, InFlightFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, folder = done
    (leaf, *_) = leaves_of_the_task(context, fake_market)
    asked_for(fake_market, leaf)
    (one,) = fake_market.audited
    fake_market.audited = [one.model_copy(update={"replica": f"another-{number}"}) for number in range(500)]
    states, looked = WindowStates(context, folder), list[str]()
    find = states._find_offer
    monkeypatch.setattr(states, "_find_offer", lambda replica: looked.append(replica) or find(replica))
    assert states.turn() == 0
    assert (len(looked), len(states._tries)) == (AT_ONCE, 0)


@pytest.mark.parametrize("raised", [ValueError, ArithmeticError])
def test_a_state_that_cannot_be_computed_hides_no_other(
    fake_market: FakeMarket,
    done: tuple[WorkerContext, InFlightFolder],
    monkeypatch: pytest.MonkeyPatch,
    raised: type[Exception],
) -> None:
    """A stranger's document may raise this: without a word the thread would end, and no audit get a state any more."""
    context, folder = done
    (leaf, *_) = leaves_of_the_task(context, fake_market)
    asked_for(fake_market, leaf)
    fake_market.audited *= 2
    own, tries = context.executor.window_state, list[Digest]()

    def fails_once(published: Publication, asked: Offer, digest: Digest) -> Bytes:
        tries.append(digest)
        if len(tries) == 1:
            raise raised("no such number")
        return own(published, asked, digest)

    monkeypatch.setattr(context.executor, "window_state", fails_once)
    assert WindowStates(context, folder).turn() == 1
    assert leaf in fake_market.brought


def test_a_worker_asks_by_itself_for_as_long_as_an_audit_may_come(
    fake_market: FakeMarket, done: tuple[WorkerContext, InFlightFolder]
) -> None:
    context, folder = done
    (leaf, *_) = leaves_of_the_task(context, fake_market)
    asked_for(fake_market, leaf)
    states = WindowStates(context, folder)
    states.start()
    try:
        wait_until(lambda: leaf in fake_market.brought)
    finally:
        states.stop()


def test_a_clock_that_was_an_hour_ahead_keeps_no_state_from_an_audit() -> None:
    """An audit waits for a lease and an upload; a worker without an upload by then has a strike."""
    context: Any = SimpleNamespace(lanes=SimpleNamespace(windowed=Windowed(1e9, 60.0)))
    states: Any = WindowStates(context, SimpleNamespace())
    states._asked_at = 1e9 + 3600.0
    assert states._is_time(1e9 + 1.0)
    states._asked_at = 1e9
    assert [states._is_time(1e9 + seconds) for seconds in (0.0, 14.0, 15.0)] == [False, False, True]
