"""Drives the stages in threads of this process: each wakes by its bell; one look-out wakes those that no bell told."""

import threading
from collections.abc import Sequence

import structlog

from gradmarket.requester import logs
from gradmarket.requester.context import Context
from gradmarket.requester.stages.stage import Stage
from gradmarket.requester.store.retries import patiently

log = structlog.get_logger("gradmarket.engine")


class StageEngine:
    """`with Engine(context, stages):` runs them until the end of the block; a stage that fails is tried again."""

    def __init__(self, context: Context, stages: Sequence[Stage]) -> None:
        self._context = context
        self._stages = stages
        self._stopping = threading.Event()
        self._notified: dict[str, threading.Event] = {}
        self._threads = [
            threading.Thread(target=self._drive, args=(stage,), name=f"stage-{stage.TOPIC}") for stage in stages
        ]
        self._threads.append(threading.Thread(target=self._look_out, name="look-out"))

    def __enter__(self) -> "StageEngine":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopping.set()
        self._context.notifier.notify([stage.TOPIC for stage in self._stages])
        for thread in self._threads:
            thread.join()

    def _drive(self, stage: Stage) -> None:
        with self._context.notifier.listen([stage.TOPIC]) as notified:
            self._notified[stage.TOPIC] = notified
            while not self._stopping.is_set():
                notified.clear()
                wait, moved = sweep_once(self._context, stage)
                if not moved and not self._stopping.is_set():
                    notified.wait(wait if wait < threading.TIMEOUT_MAX else None)

    def _look_out(self) -> None:
        """Every sweep, one transaction looks for all stages: rings are lost, and due times ring no bell."""
        while not self._stopping.wait(self._context.settings.sweep_s):
            for topic in waiting(self._context, self._stages):
                if topic in self._notified:
                    self._notified[topic].set()


def waiting(context: Context, stages: Sequence[Stage]) -> list[str]:
    """Topics of the stages with something ready; all of them where one cannot look, so that it says so itself."""
    try:
        with context.reading() as session:
            now = context.clock()
            return [stage.TOPIC for stage in stages if stage.ready(session, now)]
    except Exception:
        log.exception("the look-out cannot look")
        return [stage.TOPIC for stage in stages]


def sweep_once(context: Context, stage: Stage) -> tuple[float, bool]:
    """Runs what is ready; how long it may wait, and whether anything was run that did not ask to wait."""
    wait, moved = float("inf"), False
    for row_id in ready_rows(context, stage):
        again = run_once(context, stage, row_id)
        if again is None:
            moved = True
        else:
            wait = min(wait, again)
    return wait, moved


def run_once(context: Context, stage: Stage, row_id: str) -> float | None:
    """`stage.run`, timed and told; a stage must outlive any one row, which stays ready and is tried again."""
    with logs.about(stage.TOPIC, row_id):
        log.debug("stage begins")
        try:
            with context.meters.stage(stage.TOPIC):
                again = patiently(stage.run)(context, row_id)
        except Exception:
            log.exception("stage failed")
            return context.settings.sweep_s
        log.debug("stage ended", again_in=again)
        return again


def ready_rows(context: Context, stage: Stage) -> Sequence[str]:
    """Ids of the rows that `stage.run` can move; none where the database cannot be asked."""
    try:
        with context.reading() as session:
            return stage.ready(session, context.clock())
    except Exception:
        log.exception("stage cannot look", stage=stage.TOPIC)
        return ()
