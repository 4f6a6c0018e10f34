"""Work beside the loop: one lease under computation, and one poll that waits for news, each in a thread."""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from gradmarket.market.job import JobSpec
from gradmarket.market.wire.poll import Lease, PollAnswer, PollRequest
from graphdoc.encoding import Bytes
from worker.protocol.in_flight import InFlight

Result = TypeVar("Result")
Computed = tuple[Bytes, float]
"""A payload, and the seconds that its step took."""


class LeaseComputation(Protocol):
    """Computes the leases of some jobs in another way than as a gradient from the job's own rows."""

    def takes(self, spec: JobSpec) -> bool: ...

    def compute(self, lease: Lease) -> Computed:
        """Called in the thread that computes leases; may wait for others. Raises like WorkerContext.compute."""


def in_thread(name: str, function: Callable[[], Result]) -> "Future[Result]":
    """Calls the function in a new thread; the future has its result or exception."""
    future: Future[Result] = Future()

    def work() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001  # the future's reader sees it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


@dataclass(frozen=True)
class UnderWay(Generic[Result]):
    """`of` is the subject of the future's result."""

    future: "Future[Result]"


@dataclass(frozen=True)
class Step(UnderWay[Computed]):
    of: InFlight


@dataclass(frozen=True)
class WaitingPoll(UnderWay[PollAnswer]):
    of: PollRequest

    def covers(self, request: PollRequest) -> bool:
        """Returns whether this poll has given the market all that the other request contains."""
        return list_request_entries(request) <= list_request_entries(self.of) and self.of.leaving >= request.leaving


def list_request_entries(request: PollRequest) -> set[tuple[str, str]]:
    """Returns the request's items that the market has to accept."""
    commitments = {("commit", made.replica) for made in request.commitments}
    commitments |= {("commit", made.replica) for made in request.answers}
    reveals = {("reveal", made.replica) for made in request.reveals}
    return commitments | reveals | {("return", made.replica) for made in request.given_up}


def first_of(*under_way: "UnderWay[PollAnswer] | UnderWay[Computed] | None", within: float | None = None) -> bool:
    """Waits until one of them is done, `within` seconds at most; returns whether one is."""
    futures: list[Future[Any]] = [one.future for one in under_way if one is not None]
    return bool(wait(futures, within, return_when=FIRST_COMPLETED).done)
