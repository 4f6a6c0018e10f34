"""A job whose rounds are measured for minutes holds up neither another job's rounds nor new jobs."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from gradmarket.data.pack import Cut, pack_dataset
from gradmarket.market.job import Publication
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.terms import JobState
from requester.engine import StageEngine
from requester.features.evaluations.evaluator import Evaluator
from requester.merge_turns import QUICK_S, MergeTurns
from requester.model_runner import ModelRunner
from requester.stages import publish
from requester.store.tables import Job
from tests.kit.clock import Clock
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_until
from tests.requester.market_fixture import MarketFixture
from tests.requester.test_evaluation_bounds import NEW, drafted, linear

NewMarket = Callable[..., MarketFixture]
ALONE: dict[str, Any] = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}
SLOW, QUICK = "00000000000000bb", "00000000000000dd"


class HeldModels(ModelRunner):
    """Evaluates no round of one job until the test releases it."""

    def __init__(self, held: str) -> None:
        super().__init__()
        self.held, self.reached, self.go_on = held, threading.Event(), threading.Event()

    def find_part(self, _kind: Any) -> Any:
        return self

    def evaluate(self, _blobs: Any, publication: Publication, *_: Any, **__: Any) -> dict[str, float]:
        if publication.job == self.held:
            self.reached.set()
            assert self.go_on.wait(PATIENCE_S)
        return {"loss": 1.0}


@FULL
def test_another_job_s_rounds_go_on_while_one_is_measured(new_market: NewMarket) -> None:
    spec = {**ALONE, "rounds": 3, "evaluation": {"partition": "test"}}
    market, held = new_market(settings={"sweep_s": 0.05}), HeldModels(SLOW)
    rows = pack_dataset({"x": np.ones((8, 3), np.float32), "y": np.ones(8, np.float32)}, Cut(4, held_out=0.5))
    manifest = {"manifest": market.context.blobs.put(rows.body)}
    market.context = replace(market.context, modelling=held)
    for number, job in enumerate((SLOW, QUICK), 8):
        market._post(job, number, manifest, **spec)
        market.job = job
        market.worker()
    market.drive()

    def state(job: str) -> JobState:
        (row,) = market.all(Job, Job.id == job)
        return JobState(row.state)

    def live() -> None:
        market.take_turns()
        market.clock.now += 0.05

    with StageEngine(market.context, market.stages), ExitStack() as stack:
        stack.callback(held.close)
        stack.callback(held.go_on.set)
        market.driven = True
        wait_until(held.reached.is_set, meanwhile=live)
        wait_until(lambda: state(QUICK) == JobState.FINISHED, meanwhile=live)
        assert state(SLOW) == JobState.RUNNING
        held.go_on.set()
        wait_until(lambda: state(SLOW) == JobState.FINISHED, meanwhile=live)


def test_publishing_a_job_waits_for_no_evaluation(new_market: NewMarket) -> None:
    """The child that evaluates stands still, as one does that computes for two minutes."""
    market = new_market()
    drafted(market, linear())
    models = ModelRunner()
    market.context = replace(market.context, modelling=models)
    publish.run(market.context, NEW)
    with market.context.reading() as reader:
        publication = Publication.model_validate(reader.get_one(Job, NEW).publication)
    blobs = market.context.blobs
    manifest = parse_manifest(blobs.read(publication.manifest))
    state, evaluator = {"w": np.zeros((1, 3), np.float32)}, models.find_part(Evaluator)

    def measure() -> dict[str, float]:
        return evaluator.evaluate(blobs, publication, state, manifest, manifest.named("test"))

    with ThreadPoolExecutor(1) as threads, ExitStack() as stack:
        stack.callback(models.close)
        expected = measure()
        (child,) = (runner.pid for _, runner in evaluator._evaluating if runner.pid is not None)
        os.kill(child, signal.SIGSTOP)
        stack.callback(os.kill, child, signal.SIGCONT)
        stopped = threads.submit(measure)
        wait_until(lambda: any(lock.locked() for lock, _ in evaluator._evaluating))
        with market.context.begin() as work:
            job = work.get_one(Job, NEW)
            job.state = JobState.DRAFT
        publish.run(market.context, NEW)
        assert market.all(Job, Job.id == NEW)[0].state == JobState.AWAITING_FUNDS
        assert measure() == expected, "nor does the evaluation of another job, which has a runner of its own"
        assert not stopped.done()
        os.kill(child, signal.SIGCONT)
        assert stopped.result() == expected


def test_slow_jobs_take_turns_and_quick_ones_wait_for_none() -> None:
    clock = Clock(0.0)
    turns = MergeTurns(clock)

    def merge(job: str, seconds: float) -> bool:
        with turns.take(job) as may:
            clock.now += seconds * may
        return may

    assert merge("quick", 0.1)
    with turns.take("new") as may, turns.take("slow") as too:
        assert may
        assert too, "beside one that is slow or new there is room for another"
        clock.now += QUICK_S + 1
        assert not merge("slow", 60.0), "it is being merged"
        assert not merge("other", 60.0)
        assert merge("quick", QUICK_S)
    assert not merge("slow", 60.0), "it has had the last turn, and another one asked"
    assert merge("other", 60.0)
    assert merge("slow", 60.0)


def test_a_slow_job_is_not_taken_for_quick_after_a_round_that_was_not_measured() -> None:
    clock = Clock(0.0)
    turns = MergeTurns(clock)
    for seconds in (100.0, 0.0):
        with turns.take("slow"):
            clock.now += seconds
    with turns.take("one"), turns.take("other"), turns.take("slow") as may:
        assert not may
    for _ in range(100):
        with turns.take("slow"):
            pass
    with turns.take("one"), turns.take("other"), turns.take("slow") as may:
        assert may, "none of its rounds has been slow for long"


def test_two_slow_jobs_whose_next_rounds_are_always_there_keep_no_third_waiting() -> None:
    """The older ones ask first, as the stage asks them."""
    clock = Clock(0.0)
    turns, ends, begun = MergeTurns(clock), dict[str, tuple[float, ExitStack]](), Counter[str]()
    for _ in range(60):
        for job, seconds in (("old", 4.0), ("older", 6.0), ("new", 5.0)):
            if job in ends and ends[job][0] <= clock.now:
                ends.pop(job)[1].close()
            stack = ExitStack()
            if job not in ends and stack.enter_context(turns.take(job)):
                ends[job] = clock.now + seconds, stack
                begun[job] += 1
        clock.now += 1.0
    assert min(begun[job] for job in ("old", "older", "new")) >= 5, begun
