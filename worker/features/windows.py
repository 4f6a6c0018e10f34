"""Audits by windows: the worker brings the states that audits of its answers request, beside its other work
(features.windows)."""

import threading
import time
from collections import Counter
from typing import Final
from urllib.parse import quote

from gradmarket.market.errors import MarketError, NotFound, Refused
from gradmarket.market.features.windows import StateRequest, StatesAsked
from gradmarket.market.messages import Offer
from gradmarket.market.terms import Digest, ReplicaId
from worker.feature import WorkerFeature
from worker.markets.leasing import UNFIT
from worker.markets.worker_context import WorkerContext
from worker.protocol import records
from worker.protocol.client import MarketClient
from worker.protocol.in_flight import InFlightFolder

LOOK_S: Final = 1.0
"""Seconds between two checks whether a request is due."""
LEAST_S: Final = 3.0
STOP_S: Final = 10.0
AT_ONCE: Final = 16
"""The most requests of one answer that are looked at: for each unknown one every record is read."""
MOST_TRIES: Final = 6
"""The most states that a market may request of one replica: two, three times each; each may need unpaid computation."""
ASKED_FOR_S: Final = 2 * 86_400.0
"""Seconds after its last answer in windows for which a worker asks: a job's longest lease and upload."""


class WindowStates:
    """Asks one market in a thread of its own, as long as an answer of this worker may be audited by windows."""

    def __init__(self, context: WorkerContext, replica_files: InFlightFolder) -> None:
        self._context, self._replica_files = context, replica_files
        self._over, self._asked_at = threading.Event(), 0.0
        self._tries: Counter[ReplicaId] = Counter()
        self._thread = threading.Thread(target=self._run_until_stopped, name="window states", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, wait_s: float = STOP_S) -> None:
        """Ends the thread; waits `wait_s` for a state under way, since it needs the market's client."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def turn(self) -> int:
        """Brings the requested states; returns their number. Raises MarketError."""
        brought = 0
        # the states that audits request of this worker
        for request in self._context.market.signed_in(StatesAsked, "GET", "/v1/work/states").states[:AT_ONCE]:
            if self._over.is_set():
                break
            try:
                self._bring_state(request)
                brought += 1
            except UNFIT as error:
                why = f"Could not bring a state of {request.replica} to an audit: {error}"
                self._context.journal.once("window_state", why, replica=request.replica)
        return brought

    def _run_until_stopped(self) -> None:
        while not self._over.wait(LOOK_S):
            if not self._is_time(time.time()):
                continue
            self._asked_at = time.time()
            try:
                self.turn()
            except MarketError as error:
                self._context.journal.once("window_state", f"Could not fetch the states that audits want: {error}")

    def _is_time(self, now: float) -> bool:
        """Returns whether to ask now. An audit waits for the time of a lease and an upload: the worker asks four times
        in it, and again where the clock was set back since its last request."""
        last = self._context.lanes.windowed
        every = max(LEAST_S, last.waits_s / 4)
        return now < last.at + ASKED_FOR_S and abs(now - self._asked_at) >= every

    def _bring_state(self, request: StateRequest) -> None:
        """Brings a state of a task that this worker has computed: it computes only tasks that it was leased."""
        offer = self._find_offer(request.replica)
        if offer is None:
            raise NotFound("this worker has no record of it")
        self._tries[request.replica] += 1
        if self._tries[request.replica] > MOST_TRIES:
            raise Refused(f"the market has asked {MOST_TRIES} times for it")
        publication = self._context.view(request.job).publication
        if publication is None:
            raise NotFound("its job has no publication that this version reads")
        state = self._context.executor.window_state(publication, offer, request.digest)
        bring_state(self._context.market, request.digest, bytes(state))
        text = f"Brought the state before window {request.number} of {request.replica} to an audit."
        self._context.journal.report("window_state", text, replica=request.replica, bytes=len(state))

    def _find_offer(self, replica: ReplicaId) -> Offer | None:
        held = self._replica_files.held.get(replica)
        if held is not None:
            return held.offer
        record = records.find_newest_record(self._context.settings.data, self._context.domain, replica)
        return None if record is None else record.offer


class WindowStatesFeature(WorkerFeature):
    name = "windows"

    def open_session_part(self, context: WorkerContext, replica_files: InFlightFolder) -> WindowStates:
        return WindowStates(context, replica_files)


def bring_state(market: MarketClient, digest: Digest, state: bytes) -> None:
    market.put_bytes(f"/v1/work/states/{quote(digest, safe='')}", digest, state)
