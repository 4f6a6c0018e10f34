"""A disputed task on this machine: its operations, its trace, and one operation, all in the confined child."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from gradmarket.compute.cache import Cache
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import Refused, RunnerFailed
from gradmarket.market.rules.shortage import find_thread_count
from gradmarket.market.terms import Hash
from gradmarket.runner.tracing_runner import OperationInfo, TaskInputs, TracingRunner
from graphdoc.tracing.packed import digest_plain_bytes
from worker.features.disputes.disputed_task import DisputedTask
from worker.protocol.client import MarketClient
from worker.protocol.own_limits import machine_limits, runner_settings
from worker.settings import WorkerSettings


@dataclass(frozen=True)
class TracedCourse:
    """The course of a task (market.disputes.referee.Course), which the child describes operation by operation."""

    runner: TracingRunner
    inputs: TaskInputs
    _told: dict[int, OperationInfo] = field(default_factory=dict)

    def __len__(self) -> int:
        return self._ask(0).count

    def reads(self, leaf: int) -> Sequence[int]:
        return list(dict.fromkeys(read for read, _ in self._ask(leaf).read))

    def values(self, leaf: int) -> Sequence[tuple[int, int]]:
        place = {read: number for number, read in enumerate(self.reads(leaf))}
        return [(place[read], result) for read, result in self._ask(leaf).read]

    def results(self, leaf: int) -> int:
        return self._ask(leaf).results

    def name(self, leaf: int) -> str:
        return self._ask(leaf).name

    def answer_leaf(self, root: Hash) -> bytes:
        return digest_plain_bytes(root)

    def show(self, leaf: int) -> Sequence[bytes]:
        """Returns the bytes of what an operation reads: the task is traced once more for them."""
        return self.runner.trace(self.inputs, self._ask(leaf).read).values

    def redo(self, leaf: int, values: Sequence[bytes]) -> bytes:
        """Returns the leaf of an operation. Raises Refused where it cannot be computed here."""
        try:
            return self.runner.redo(self.inputs, leaf, values)
        except RunnerFailed as error:
            raise Refused(f"this machine could not compute it: {error.detail}") from error

    def _ask(self, leaf: int) -> OperationInfo:
        if leaf not in self._told:
            self._told[leaf] = self.runner.describe(self.inputs, leaf)
        return self._told[leaf]


@contextmanager
def open_course(settings: WorkerSettings, market: MarketClient, task: DisputedTask) -> Iterator[TracedCourse]:
    """Fetches what the task is computed from, and starts the child of the class that its answers came from."""
    limits = replace(runner_settings(settings), threads=settings.threads or _choose_threads(task))
    fetcher = Fetcher(
        Cache(settings.downloads, settings.max_disk),
        market.origin,
        settings.max_download,
        bearer=market.bearer,
        stores=settings.stores,
        data_servers=settings.data_servers,
    )
    try:
        with TracingRunner(limits) as runner:
            inputs = Executor(runner, fetcher, machine_limits(settings)).inputs_of(task.publication, task.offer)
            yield TracedCourse(runner, inputs)
    finally:
        fetcher.close()


def _choose_threads(task: DisputedTask) -> int:
    """Returns the threads of the answers' class, where this machine has as many: a market's word starts no more."""
    named = {find_thread_count(each) for each in task.classes.values()} - {None}
    threads = named.pop() if len(named) == 1 else None
    return threads if threads is not None and threads <= (os.cpu_count() or 1) else 1
