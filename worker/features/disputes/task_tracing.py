"""A disputed task on a worker's machine: what it is computed from is fetched, and traced in the confined child."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from gradmarket.compute.cache import Cache
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.own_machine import choose_named_threads
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from gradmarket.runner.features.disputes.tracing_runner import TracingRunner
from worker.protocol.client import MarketClient
from worker.protocol.own_limits import machine_limits, runner_settings
from worker.settings import WorkerSettings


@contextmanager
def open_course(
    settings: WorkerSettings, market: MarketClient, publication: Publication, offer: Offer, classes: Iterable[str]
) -> Iterator[TracedCourse]:
    """Fetches what the task is computed from, and starts the child of the `classes` that its answers came from."""
    threads = settings.threads or choose_named_threads(classes) or 1
    limits = replace(runner_settings(settings), threads=threads)
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
            inputs = Executor(runner, fetcher, machine_limits(settings)).inputs_of(publication, offer)
            yield TracedCourse(runner, inputs)
    finally:
        fetcher.close()
