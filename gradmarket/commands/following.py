"""Follows a job to its end, through outages of the service, and calls callbacks for its rounds."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from gradmarket.callbacks import Callback, figures_of
from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import ServiceProblem, ServiceUnreachable
from gradmarket.client.transport import BUSY, FIRST_PAUSE_S, LONGEST_PAUSE_S, ServerSentEvent
from gradmarket.market.errors import MarketError
from gradmarket.market.printable import replace_controls
from gradmarket.market.terms import JobState
from gradmarket.market.views.job_views import JobView

Show = Callable[[JobView], None]
OnEvent = Callable[[ServerSentEvent], None]
Away = Callable[[JobView, MarketError, int], None]
"""(the job when last seen, the error instead of an answer, the number of errors since then)"""
CLOSED: Final = "round_closed"
OVER: Final = (JobState.FINISHED, JobState.CANCELLED, JobState.FAILED)
NEWS: Final = (CLOSED, "paused", "resumed", "published", *OVER)
LOOK_EVERY_S: Final = 0.5


class JobPaused(MarketError):
    """The job is paused."""

    def __str__(self) -> str:
        return f"{super().__str__()}; `{self.remedy}`"


def refuse_pause(job: JobView) -> None:
    """Raises JobPaused, whose remedy is the one command that mends it, where the job is paused."""
    if job.state is JobState.PAUSED:
        raise JobPaused(replace_controls(job.reason, " "), replace_controls(job.remedy, " "))


def follow_job(
    market: RequesterClient, job_id: str, show: Show, away: Away, on_event: OnEvent = lambda _event: None
) -> JobView:
    """Shows the job at every relevant change until it has ended; returns its last view.

    `on_event` gets each event once, in order. While the service does not answer, `away` is called for each try; only an
    error that it raises ends the tries. Raises ServiceUnreachable if the service did not answer at first.
    """
    following = _Following(market, job_id, show, on_event)
    following.look()
    while True:
        try:
            job = following.to_the_end()
            if job.state in OVER:
                return job
        except (ServiceUnreachable, ServiceProblem) as error:
            if not is_passing_error(error):
                raise
            following.tries += 1
            away(following.job, error, following.tries)
        time.sleep(compute_pause(following.tries))


def compute_pause(tries: int) -> float:
    """Returns the seconds until the next try, after `tries` failed ones."""
    return float(min(FIRST_PAUSE_S * 2 ** min(tries, 32), LONGEST_PAUSE_S))


class _Following:
    """`job` as it was seen last; `tries` without an answer since then; `_after`: the newest event passed on."""

    def __init__(self, market: RequesterClient, job_id: str, show: Show, on_event: OnEvent) -> None:
        self._market, self._job_id, self._show, self._told = market, job_id, show, on_event
        self._after, self._looked = 0, 0.0

    def to_the_end(self) -> JobView:
        """Returns the job after its stream of events ended: with the job, or because the service stops."""
        for event in self._market.watch(self._job_id, self._after):
            if event is not None:
                self._told(event)
                self._after = event.id
            if event is None or event.kind in NEWS or time.monotonic() - self._looked > LOOK_EVERY_S:
                self.look()
        return self.look()

    def look(self) -> JobView:
        self.job = self._market.job(self._job_id)
        self.tries = 0
        self._show(self.job)
        self._looked = time.monotonic()
        return self.job


def is_passing_error(error: MarketError) -> bool:
    """Whether a service that restarts, or the proxy before it, answers like that."""
    return error.status in BUSY if isinstance(error, ServiceProblem) else True


def describe_outage(error: MarketError) -> str:
    return f"no connection ({error}): trying again until it is back; the job does not wait for this"


@contextmanager
def record_callbacks(
    market: RequesterClient, job_id: str, callbacks: Sequence[Callback], warn: Callable[[str], None]
) -> Iterator[OnEvent]:
    """Yields a function that passes an event to the callbacks; the block's start and end pass them the job's.

    A callback that fails causes one warning, and is still called for later events: a tracker that is down ends no
    watching. Where the service is away at the end, `ended` gets the job as it was at the start.
    """
    job, failed = market.job(job_id), set[int]()

    def each(hook: Callable[[Callback], None]) -> None:
        for callback in callbacks:
            try:
                hook(callback)
            except Exception as error:  # noqa: BLE001  # whatever a tracker's library raises
                if id(callback) not in failed:
                    warn(f"{type(callback).__name__} does not record this job: {type(error).__name__}: {error}")
                failed.add(id(callback))

    each(lambda callback: callback.started(job))

    def handle_event(event: ServerSentEvent) -> None:
        if event.kind == CLOSED:
            each(lambda callback: callback.round_closed(int(event.body["round"]), figures_of(event)))

    try:
        yield handle_event
    finally:
        with suppress(ServiceUnreachable, ServiceProblem):
            job = market.job(job_id)
        each(lambda callback: callback.ended(job))
