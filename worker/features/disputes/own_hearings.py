"""Answers what the market's referee asks of this worker's answers, beside its other work.

A task is computed again, operation by operation, only once its referee asks; what it computes then is one that this
worker was leased and has answered, and each hearing asks for three more runs at most,
between classes for two more with each later operation that is judged (disputes.careful_side).
"""

import threading
from contextlib import ExitStack, nullcontext
from typing import Final

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.errors import MarketError, NotFound, Refused, RunnerFailed
from gradmarket.market.features.disputes.careful_side import CarefulSide, PutQuestion
from gradmarket.market.features.disputes.questions import digest_said
from gradmarket.market.features.disputes.side import Side
from gradmarket.market.signing import digest_struct
from gradmarket.market.terms import Hash, ReplicaId
from gradmarket.market.wire.hearing_messages import HearingAnswer, HearingQuestion, HearingQuestions, HearingReceipt
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from worker.features.disputes.attended_answer import AttendedAnswer, LentCourse
from worker.features.disputes.task_tracing import open_course
from worker.markets.worker_context import WorkerContext
from worker.protocol.client import MarketClient
from worker.protocol.in_flight import InFlight, InFlightFolder

LOOK_S: Final = 0.5
WAIT_S: Final = 15.0
"""Seconds that a request waits for the next question."""
STOP_S: Final = 10.0
REST_S: Final = 5.0


class OwnHearings:
    """Listens to one market's referee in a thread of its own, while an answer of this worker is disputed."""

    def __init__(self, context: WorkerContext, replica_files: InFlightFolder) -> None:
        self._context, self._replica_files = context, replica_files
        self._over = threading.Event()
        self._attended: dict[ReplicaId, AttendedAnswer] = {}
        self._lost: set[ReplicaId] = set()
        """Answers that do not come out again: they are computed no further time."""
        self._children = ExitStack()
        self._child: tuple[ReplicaId, TracedCourse] | None = None
        self._thread = threading.Thread(target=self._run_until_stopped, name="hearings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, wait_s: float = STOP_S) -> None:
        """Ends the thread; waits so long for what it is answering."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def turn(self, wait_s: float = WAIT_S) -> int:
        """Answers what is asked; returns how many questions that were. Raises MarketError."""
        answered = 0
        for question in ask_hearings(self._context.market, wait_s).questions:
            if self._over.is_set():
                break
            if question.replica not in self._lost:
                answered += self._answer(question)
            elif not answered:
                self._over.wait(REST_S)
        return answered

    def _run_until_stopped(self) -> None:
        with self._children:
            while not self._over.wait(LOOK_S):
                while self._context.attending and not self._over.is_set():
                    self._turn_patiently()
                self._attended.clear()
                self._close_child()

    def _turn_patiently(self) -> None:
        try:
            self.turn()
        except MarketError as error:
            self._context.journal.once("hearing", f"Could not hear what a referee asks: {error}")
            self._over.wait(REST_S)

    def _answer(self, asked: HearingQuestion) -> bool:
        """Answers one question; what cannot be answered is said once, and loses in time."""
        try:
            reply = self._attend(asked.replica).answer(PutQuestion.read(asked))
            said = HearingAnswer(
                side=reply.side,
                number=reply.number,
                said=digest_said(reply.said),
                signature=reply.signature,
                replica=asked.replica,
            )
            answer_hearing(self._context.market, said, reply.said)
        except (Refused, NotFound, RunnerFailed, ServiceProblem) as error:
            text = f"Could not answer the referee about {asked.replica}: {error}"
            self._context.journal.once("hearing", text, replica=asked.replica)
            if isinstance(error, RunnerFailed):
                self._close_child()
            self._over.wait(REST_S)
            return False
        text = f"Answered question {asked.number} of the referee about {asked.replica}: {asked.asked}."
        self._context.journal.say("hearing", text, replica=asked.replica, asked=asked.asked, bytes=len(reply.said))
        return True

    def _attend(self, replica: ReplicaId) -> AttendedAnswer:
        """Returns the answer with its trace, which is made at the first question. Raises NotFound, Refused."""
        if replica not in self._attended:
            held = self._replica_files.held.get(replica)
            if held is None or held.prepared is None:
                raise NotFound("this worker has no answer of it")
            opened = self._open(held, hash_of(held.prepared.root))
            still = self._context.attending
            self._attended = {name: each for name, each in self._attended.items() if name in still} | {replica: opened}
        return self._attended[replica]

    def _open(self, held: InFlight, root: Hash) -> AttendedAnswer:
        context, course = self._context, self._lend(held)
        trace = course.runner.trace(course.inputs)
        if trace.root != root:
            self._lost.add(held.replica)
            raise Refused("the task comes out otherwise than it was answered: there is nothing to stand by")
        offer, lent = digest_struct(context.domain, held.offer), LentCourse(lambda: self._lend(held))

        def build_side() -> CarefulSide:
            own = Side(context.address, context.own_signer, trace.checkpoints, lent.detail, lent.show, lent.results)
            return CarefulSide(context.domain, offer, root, own, lent, context.signer)

        return AttendedAnswer(build_side, self._replica_files.parts(held.replica))

    def _lend(self, held: InFlight) -> TracedCourse:
        """Returns the answer's task in this worker's one child, which another answer may have had before."""
        if self._child is None or self._child[0] != held.replica:
            self._close_child()
            context = self._context
            publication = context.view(held.lease.job).publication
            if publication is None:
                raise NotFound("its job is not published")
            opened = open_course(context.settings, context.market, publication, held.offer, [context.determinism_class])
            self._child = held.replica, self._children.enter_context(opened)
        return self._child[1]

    def _close_child(self) -> None:
        self._child = None
        self._children.close()


def ask_hearings(market: MarketClient, wait_s: float) -> HearingQuestions:
    """Returns what referees ask this worker; waits so long for a question."""
    return market.signed_in(HearingQuestions, "GET", "/v1/work/hearings", params={"wait_s": wait_s}, waits=wait_s)


def answer_hearing(market: MarketClient, said: HearingAnswer, body: bytes) -> None:
    headers = {f"hearing-{name}": str(value) for name, value in said.model_dump(mode="json").items()}
    headers["content-length"] = str(len(body))
    market.signed_in(HearingReceipt, "POST", "/v1/work/hearings", headers=headers, content=lambda: nullcontext(body))
