"""A worker's own side of its market's hearings: each is of an answer to a lease of its own."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.compute.executor import Executor
from gradmarket.compute.own_machine import choose_named_threads
from gradmarket.market.errors import NotFound
from gradmarket.market.features.disputes.careful_side import PutQuestion
from gradmarket.market.features.disputes.questions import HearingAnswer, HearingQuestions, Reply, digest_reply
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.terms import Digest, ReplicaId
from gradmarket.market.wire.hearing_messages import HearingReceipt
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from gradmarket.runner.features.disputes.tracing_runner import TracingRunner
from worker.features.disputes.hearing_attendance import HearingAttendance, OwnAnswer
from worker.features.disputes.kept_receipts import find_receipts_file
from worker.markets.market_session import build_fetcher
from worker.markets.worker_context import WorkerContext
from worker.protocol.client import MarketClient
from worker.protocol.in_flight import InFlight, InFlightFolder
from worker.protocol.policy import machine_limits, runner_settings
from worker.settings import WorkerSettings


class OwnHearings(HearingAttendance[ReplicaId]):
    """Listens while an answer of this worker is disputed; answers are named by their replicas."""

    refusals = (ServiceProblem,)

    def __init__(self, context: WorkerContext, replica_files: InFlightFolder) -> None:
        super().__init__()
        self._context, self._replica_files = context, replica_files

    def list_questions(self, wait_s: float) -> Iterator[tuple[ReplicaId, PutQuestion]]:
        asked = ask_hearings(self._context.market, wait_s).questions
        return ((each.replica, PutQuestion.read(each)) for each in asked)

    def list_attended(self) -> Collection[ReplicaId]:
        return self._context.attending

    def find_answer(self, name: ReplicaId, put: PutQuestion) -> OwnAnswer:  # noqa: ARG002  # it knows what it answered
        context, (held, root) = self._context, self._find_held(name)
        parts, task = self._replica_files.parts(name), held.lease.task
        receipts = find_receipts_file(context.settings.data, context.domain.instance, held.offer.job)
        own = context.address, context.own_signer
        answered = context.domain, task, held.offer, hash_of(Digest(root))
        return OwnAnswer(*answered, *own, context.signer, parts, receipts)

    def _find_held(self, name: ReplicaId) -> tuple[InFlight, str]:
        held = self._replica_files.held.get(name)
        if held is None or held.prepared is None:
            raise NotFound("this worker stored no answer to it")
        return held, held.prepared.root

    def open_task(self, name: ReplicaId) -> AbstractContextManager[TracedCourse]:
        context, (held, _) = self._context, self._find_held(name)
        publication = context.view(held.lease.job).publication
        if publication is None:
            raise NotFound("its job is not published")
        return open_course(context.settings, context.market, publication, held.offer, [context.determinism_class])

    def bring(self, name: ReplicaId, reply: Reply) -> HearingReceipt:
        answer = HearingAnswer(
            side=reply.side,
            number=reply.number,
            said=digest_reply(reply.said),
            signature=reply.signature,
            replica=name,
        )
        return answer_hearing(self._context.market, answer, reply.said)

    def report_progress(self, text: str, name: ReplicaId | None, reply: Reply | None = None) -> None:
        about = {} if name is None else {"replica": name}
        if reply is None:
            self._context.journal.once("hearing", text, **about)
        else:
            self._context.journal.report("hearing", text, **about, bytes=len(reply.said))


def ask_hearings(market: MarketClient, wait_s: float) -> HearingQuestions:
    """Returns referees' questions to this worker; waits `wait_s` for one."""
    return market.signed_in(HearingQuestions, "GET", "/v1/work/hearings", params={"wait_s": wait_s}, waits=wait_s)


def answer_hearing(market: MarketClient, answer: HearingAnswer, body: bytes) -> HearingReceipt:
    """Brings an answer; returns the referee's receipt, unchecked."""
    headers = {f"hearing-{name}": str(value) for name, value in answer.model_dump(mode="json").items()}
    headers["content-length"] = str(len(body))
    return market.signed_in(
        HearingReceipt, "POST", "/v1/work/hearings", headers=headers, content=lambda: nullcontext(body)
    )


@contextmanager
def open_course(
    settings: WorkerSettings, market: MarketClient, publication: Publication, offer: Offer, classes: Iterable[str]
) -> Iterator[TracedCourse]:
    """Fetches the task's inputs, and starts the child of the `classes` of its answers."""
    threads = settings.threads or choose_named_threads(classes) or 1
    limits = replace(runner_settings(settings), threads=threads)
    fetcher = build_fetcher(settings, market)
    try:
        with TracingRunner(limits) as runner:
            inputs = Executor(runner, fetcher, machine_limits(settings)).inputs_of(publication, offer)
            yield TracedCourse(runner, inputs)
    finally:
        fetcher.close()
