"""Runs the stages in threads of this process: each wakes by a notification, or by the look-out without one.

A stage with SPARE has that number of further threads, so that a long run for one row holds up no other.
"""

import itertools
import threading
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Final, Protocol

import structlog

from requester import logs
from requester.context import Context
from requester.feature import Feature, look_after
from requester.meters import record_span
from requester.stages import aggregate, assign, close, collect, expire, judge, plan, publish, settle
from requester.store.locks import retry_on_conflict
from requester.store.work import RowReader


class Stage(Protocol):
    """A module of requester/stages."""

    TOPIC: str
    """The notification topic that signals ready rows."""

    def ready(self, reader: RowReader, now: float, /) -> Sequence[str]:
        """Returns a limited number of ids of rows that `run` can move, the oldest first."""

    def run(self, context: Context, row_id: str, /) -> float | None:
        """Moves one row on if that is still possible; returns the seconds until the next try, or None."""


STAGES: Final[dict[str, ModuleType]] = {
    stage.TOPIC: stage
    for stage in (
        *(publish, plan, assign, close, judge, expire, aggregate),
        *(collect, settle),
    )
}

log = structlog.get_logger("gradmarket.engine")


def stages_with(features: Iterable[Feature]) -> dict[str, ModuleType]:
    """Returns all stages by topic: the kernel's and these features'."""
    return STAGES | {stage.TOPIC: stage for feature in features for stage in feature.stages}


class StageEngine:
    """`with StageEngine(context, stages):` runs them until the end of the block; a stage that fails is tried again."""

    def __init__(self, context: Context, stages: Sequence[Stage]) -> None:
        self._context = context
        self._stages = stages
        self._stopping = threading.Event()
        self._notified: dict[str, threading.Event] = {}
        self._threads = [
            threading.Thread(target=self._run_stage_loop, args=(stage,), name=f"stage-{stage.TOPIC}")
            for stage in stages
        ]
        self._spare: dict[str, list[threading.Event]] = {}
        for stage in stages:
            self._spare[stage.TOPIC] = [threading.Event() for _ in range(getattr(stage, "SPARE", 0))]
            self._threads += [
                threading.Thread(target=self._run_spare_loop, args=(stage, woken), name=f"spare-{stage.TOPIC}")
                for woken in self._spare[stage.TOPIC]
            ]
        self._threads.append(threading.Thread(target=self._look_out, name="look-out"))

    def __enter__(self) -> "StageEngine":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopping.set()
        self._context.notifier.notify([stage.TOPIC for stage in self._stages])
        for woken in itertools.chain(*self._spare.values()):
            woken.set()
        for thread in self._threads:
            thread.join()

    def _run_stage_loop(self, stage: Stage) -> None:
        with self._context.notifier.listen([stage.TOPIC]) as notified:
            self._notified[stage.TOPIC] = notified
            while not self._stopping.is_set():
                notified.clear()
                wait, moved = sweep_once(self._context, stage)
                if not moved and not self._stopping.is_set():
                    notified.wait(wait if wait < threading.TIMEOUT_MAX else None)

    def _run_spare_loop(self, stage: Stage, woken: threading.Event) -> None:
        """Runs the rows that a long run of the stage's own thread holds up; only the look-out wakes it."""
        while not self._stopping.is_set():
            woken.wait()
            woken.clear()
            while not self._stopping.is_set() and sweep_once(self._context, stage)[1]:
                pass

    def _look_out(self) -> None:
        """Looks for all stages' ready rows once a sweep: notifications get lost, and due times send none."""
        while not self._stopping.wait(self._context.settings.sweep_s):
            for topic in list_waiting_topics(self._context, self._stages):
                if topic in self._notified:
                    self._notified[topic].set()
                for woken in self._spare[topic]:
                    woken.set()


def list_waiting_topics(context: Context, stages: Sequence[Stage]) -> list[str]:
    """Returns topics of stages with ready rows; all of them where the query fails, so that each reports it."""
    look_after(context)
    try:
        with context.reading() as reader:
            now = context.clock()
            return [stage.TOPIC for stage in stages if stage.ready(reader, now)]
    except Exception:
        log.exception("the look-out cannot look")
        return [stage.TOPIC for stage in stages]


def sweep_once(context: Context, stage: Stage) -> tuple[float, bool]:
    """Runs the ready rows; returns the seconds until the next try, and whether any run asked for none."""
    wait, moved = float("inf"), False
    for row_id in ready_rows(context, stage):
        again = run_once(context, stage, row_id)
        if again is None:
            moved = True
        else:
            wait = min(wait, again)
    return wait, moved


def run_once(context: Context, stage: Stage, row_id: str) -> float | None:
    """Runs `stage.run`, timed and logged. A row that fails stays ready and is tried again; the stage goes on."""
    with logs.bind_stage_and_row(stage.TOPIC, row_id):
        log.debug("stage begins")
        try:
            with context.meters.stage(stage.TOPIC), record_span(f"stage {stage.TOPIC}"):
                again = retry_on_conflict(stage.run)(context, row_id)
        except Exception:
            log.exception("stage failed")
            return context.settings.sweep_s
        log.debug("stage ended", again_in=again)
        return again


def ready_rows(context: Context, stage: Stage) -> Sequence[str]:
    """Returns the ids of the rows that `stage.run` can move; none where the database cannot be queried."""
    try:
        with context.reading() as reader:
            return stage.ready(reader, context.clock())
    except Exception:
        log.exception("stage cannot look", stage=stage.TOPIC)
        return ()
