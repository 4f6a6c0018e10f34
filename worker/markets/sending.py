"""Chooses the payloads of the next request: the requested ones, and those of tasks on which nobody else votes."""

from collections.abc import Callable, Collection, Sequence

from gradmarket.market.terms import ReplicaId
from gradmarket.market.wire import framing
from gradmarket.market.wire.poll import PayloadPart, PollRequest, UploadRequest
from worker.markets.leasing import Leasing
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlight, InFlightFolder
from worker.protocol.outgoing import Payload


class Sending:
    """Payloads on their way to one market, or to the object store that it names."""

    def __init__(
        self,
        context: WorkerContext,
        replica_files: InFlightFolder,
        leasing: Leasing,
        clock: Callable[[], float],
    ) -> None:
        self._context, self._replica_files, self._leasing, self._clock = context, replica_files, leasing, clock
        self._asked: dict[ReplicaId, UploadRequest] = {}
        """Requested since the last request."""
        self._put: set[ReplicaId] = set()
        self._not_there: set[ReplicaId] = set()
        """Uploaded to its address, and not found there: the market gets the bytes."""

    def record_request(self, wanted: UploadRequest) -> bool:
        """Records that the market requests a payload; returns whether it may be sent."""
        held = self._replica_files.held.get(wanted.replica)
        if held is None or held.prepared is None or not held.promised or held.uploaded or not held.open:
            return False
        if not held.asked:
            held = self._replica_files.save(held, asked=True)
        self._asked[held.replica] = wanted
        return held.sent or not self._leasing.is_at_unpaid_limit()

    def chosen(self) -> list[InFlight]:
        """Returns the replicas whose payloads the next request brings, within the limit of unpaid payloads.

        A payload without a promise takes a worker's last place only where the job pays for every payload within its
        lease.
        """
        asked = [self._replica_files.held[replica] for replica in self._asked if replica in self._replica_files.held]
        early = [one for one in self._replica_files.open() if self._comes_with_its_answer(one)]
        left, chosen = self._leasing.may_send(), list[InFlight]()
        for one, spare in [*((one, 0) for one in asked), *((one, self._count_spare_sends(one)) for one in early)]:
            if one.sent or left > spare:
                left -= not one.sent
                chosen.append(one)
        for one in chosen:
            self._put_past_the_market(one, self._asked.get(one.replica))
        self._asked = {}
        return [self._replica_files.held[one.replica] for one in chosen]

    def _count_spare_sends(self, held: InFlight) -> int:
        """Returns the number of other payloads that may still leave beside an unpromised one, possibly sent in vain."""
        spec = self._context.spec(held.lease.job)
        return 0 if spec is not None and spec.answered_at_once else 1

    def _comes_with_its_answer(self, held: InFlight) -> bool:
        if held.answer() is None or held.uploaded or not held.in_time(self._clock()):
            return False
        spec = self._context.spec(held.lease.job)
        return spec is not None and spec.decided_alone

    def _put_past_the_market(self, held: InFlight, wanted: UploadRequest | None) -> None:
        if wanted is None or held.replica in self._not_there:
            return
        payload = self._build_payload(held.replica)
        if wanted.door is not None:
            done = self._context.put(payload, wanted.door)
        else:
            done = wanted.in_parts and self._context.put_in_parts(payload, held)
        if done:
            self._put.add(held.replica)

    def parts(self, sending: Sequence[InFlight]) -> tuple[PayloadPart, ...]:
        """Returns the request's parts. A payload of several pieces comes in pieces, so that it can resume after a
        break."""
        parts = list[PayloadPart]()
        for held in sending:
            file, put = self._replica_files.payload(held.replica), held.replica in self._put
            start = 0 if not put and file.is_file() and file.stat().st_size > framing.PIECE else None
            parts.append(PayloadPart(replica=held.replica, fence=held.lease.fence, put=put, start=start))
        return tuple(parts)

    def payloads(self, request: PollRequest) -> list[Payload]:
        """Returns the payloads whose bytes follow the request."""
        return [self._build_payload(part.replica, part) for part in request.payloads if not part.put]

    def _build_payload(self, replica: ReplicaId, part: PayloadPart | None = None) -> Payload:
        files = self._replica_files
        return Payload(files.payload(replica), lambda: files.sent(replica), part, files.held[replica].sent)

    def note_confirmed_payloads(self, request: PollRequest, refused: Collection[ReplicaId]) -> None:
        """Records the payloads that the market has."""
        for part in request.payloads:
            if part.replica not in refused and part.replica in self._replica_files.held:
                self._replica_files.put(self._replica_files.held[part.replica], uploaded=True)
            elif part.put:
                self._not_there.add(part.replica)
            self._put.discard(part.replica)

    def failed(self, request: PollRequest, problem: Exception) -> None:
        for part in request.payloads:
            text = f"Could not upload {part.replica}: {problem}"
            self._context.journal.once("upload_refused", text, replica=part.replica)
            self._put.discard(part.replica)
