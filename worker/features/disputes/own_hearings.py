"""Answers what the market's referee asks of this worker's answers, beside its other work.

A task is computed again, operation by operation, only once its referee asks; what it computes then is one that this
worker was leased and has answered, and each hearing asks for three more runs at most,
between classes for two more with each later operation that is judged (disputes.careful_side).
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.errors import MarketError, NotFound, Refused, RunnerFailed
from gradmarket.market.features.disputes.careful_side import CarefulSide, PutQuestion
from gradmarket.market.features.disputes.questions import Question, Reply, digest_said
from gradmarket.market.features.disputes.side import Side
from gradmarket.market.signing import digest_struct
from gradmarket.market.terms import Hash, ReplicaId
from gradmarket.market.wire.hearing_messages import HearingAnswer, HearingQuestion
from gradmarket.market.wire.poll import hash_of
from worker.features.disputes.task_tracing import open_course
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlight, InFlightFolder

LOOK_S: Final = 0.5
WAIT_S: Final = 15.0
"""Seconds that a request waits for the next question."""
STOP_S: Final = 10.0
MOST_HEARINGS: Final = 16
"""Hearings of one answer in which this worker takes part: a market may not have it computed again for ever."""
REST_S: Final = 5.0


@dataclass
class _Attended:
    """An answer that its referee asks about, with its child; `sides` by the hearing's name."""

    held: InFlight
    root: Hash
    side: Callable[[], CarefulSide]
    sides: dict[Hash, CarefulSide] = field(default_factory=dict)

    def answer(self, put: PutQuestion) -> Reply:
        """Raises Refused where the question is none of its hearing's, or its hearings are too many."""
        fresh = self.side()
        name = fresh.name_dispute(put.sides, put.roots)
        if name not in self.sides:
            if len(self.sides) == MOST_HEARINGS:
                raise Refused(f"the market has had {MOST_HEARINGS} hearings about one answer")
            self.sides[name] = fresh
        return self.sides[name].answer(put)


class OwnHearings:
    """Listens to one market's referee in a thread of its own, while an answer of this worker is disputed."""

    def __init__(self, context: WorkerContext, replica_files: InFlightFolder) -> None:
        self._context, self._replica_files = context, replica_files
        self._over = threading.Event()
        self._attended: dict[ReplicaId, _Attended] = {}
        self._lost: set[ReplicaId] = set()
        """Answers that do not come out again: they are computed no further time."""
        self._children = ExitStack()
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
        for question in self._context.market.hearings(wait_s).questions:
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
                self._children.close()

    def _turn_patiently(self) -> None:
        try:
            self.turn()
        except MarketError as error:
            self._context.journal.once("hearing", f"Could not hear what a referee asks: {error}")
            self._over.wait(REST_S)

    def _answer(self, asked: HearingQuestion) -> bool:
        """Answers one question; what cannot be answered is said once, and loses in time."""
        put = PutQuestion(
            asked.sides,
            asked.roots,
            asked.number,
            Question(asked.asked, asked.level, asked.place),
            asked.until,
            asked.signature,
        )
        try:
            reply = self._attend(asked.replica).answer(put)
            said = HearingAnswer(
                side=reply.side,
                number=reply.number,
                said=digest_said(reply.said),
                signature=reply.signature,
                replica=asked.replica,
            )
            self._context.market.answer_hearing(said, reply.said)
        except (Refused, NotFound, RunnerFailed, ServiceProblem) as error:
            text = f"Could not answer the referee about {asked.replica}: {error}"
            self._context.journal.once("hearing", text, replica=asked.replica)
            self._over.wait(REST_S)
            return False
        text = f"Answered question {asked.number} of the referee about {asked.replica}: {asked.asked}."
        self._context.journal.say("hearing", text, replica=asked.replica, asked=asked.asked, bytes=len(reply.said))
        return True

    def _attend(self, replica: ReplicaId) -> _Attended:
        """Returns the answer with its trace, which is made at the first question. Raises NotFound, Refused."""
        if replica not in self._attended:
            held = self._replica_files.held.get(replica)
            publication = None if held is None else self._context.view(held.lease.job).publication
            if held is None or held.prepared is None or publication is None:
                raise NotFound("this worker has no answer of it")
            self._attended[replica] = self._open(held, hash_of(held.prepared.root))
        return self._attended[replica]

    def _open(self, held: InFlight, root: Hash) -> _Attended:
        context = self._context
        publication = context.view(held.lease.job).publication
        if publication is None:
            raise NotFound("its job is not published")
        self._children.close()  # one child at a time
        self._attended.clear()
        opened = open_course(context.settings, context.market, publication, held.offer, [context.determinism_class])
        course = self._children.enter_context(opened)
        trace = course.runner.trace(course.inputs)
        if trace.root != root:
            self._lost.add(held.replica)
            raise Refused("the task comes out otherwise than it was answered: there is nothing to stand by")
        offer = digest_struct(context.domain, held.offer)

        def build_side() -> CarefulSide:
            own = Side(
                context.address, context.own_signer, trace.checkpoints, course.detail, course.show, course.results
            )
            return CarefulSide(context.domain, offer, root, own, course, context.signer)

        return _Attended(held, root, build_side)
