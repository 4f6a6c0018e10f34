"""A panel auditor's own side of its job's hearings: each is of an answer that it opened to its panel."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gradmarket.auditor import OpenMachine
from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.digests import blob_digest
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.features.disputes.careful_side import PutQuestion
from gradmarket.market.features.disputes.questions import Reply, digest_reply
from gradmarket.market.signing import Domain, signer_of
from gradmarket.market.wire.hearing_messages import AuditorQuestion, AuditorStatement, HearingReceipt
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from gradmarket.runner.features.disputes.tracing_runner import TracingRunner
from gradmarket.sealing import SealingKey
from gradmarket.terminal import echo_text
from worker.features.disputes.hearing_attendance import HearingAttendance, OwnAnswer
from worker.features.disputes.kept_receipts import find_receipts_file

STOP_S: Final = 1.0
"""Seconds for which a stopping auditor waits for an answer under way; longer ones are abandoned."""


class AuditorHearings(HearingAttendance[str]):
    """Always listens, since its opened answers are not stored; answers are named by their tasks.

    It defends the opened answer that the question names, if it computes the same again. The referee belongs to its own
    service, for which it computes anyway.
    """

    refusals = (ServiceProblem,)

    def __init__(
        self, market: RequesterClient, sealing: SealingKey, mine: OpenMachine, fetcher: Fetcher, folder: Path
    ) -> None:
        super().__init__()
        self._market, self._sealing, self._mine, self._fetcher = market, sealing, mine, fetcher
        self._folder, self._reported = folder, ""
        self._asked: dict[str, AuditorQuestion] = {}
        self._domains = list[Domain]()

    def list_questions(self, wait_s: float) -> Iterator[tuple[str, PutQuestion]]:
        questions = self._market.list_auditor_questions(self._sealing.signer, wait_s).questions
        self._asked = {str(each.task): each for each in questions}
        return ((name, PutQuestion.read(each)) for name, each in self._asked.items())

    def list_attended(self) -> None:
        return None

    def find_answer(self, name: str, put: PutQuestion) -> OwnAnswer:
        signer, asked = self._sealing.signer, self._find_question(name)
        roots = dict(zip(put.sides, put.roots, strict=True))
        if signer not in roots:
            raise NotFound("this auditor stored no answer to it")
        domain, parts = self._load_domain(), self._folder / f"{blob_digest(name.encode())[-32:]}.parts"
        offer, own = asked.offer.struct(), signer_of(self._sealing.key)
        receipts = find_receipts_file(self._folder, domain.instance, asked.offer.job)
        return OwnAnswer(domain, offer, roots[signer], signer, own, asked.referee, parts, receipts)

    @contextmanager
    def open_task(self, name: str) -> Iterator[TracedCourse]:
        asked = self._find_question(name)
        publication, offer = self._market.publication(asked.job), asked.offer.struct()
        if hash_of(publication.digest) != asked.offer.spec:
            raise Refused(f"job {asked.job} is not published as the offer of {name} names it")
        with TracingRunner(self._mine.runner.settings) as runner:
            yield TracedCourse(runner, Executor(runner, self._fetcher, self._mine.limits).inputs_of(publication, offer))

    def bring(self, name: str, reply: Reply) -> HearingReceipt:
        statement = AuditorStatement(
            side=reply.side,
            number=reply.number,
            said=digest_reply(reply.said),
            signature=reply.signature,
            task=self._find_question(name).task,
        )
        return self._market.answer_as_auditor(statement, reply.said)

    def report_progress(self, text: str, name: str | None, reply: Reply | None = None) -> None:  # noqa: ARG002  # in the text
        if text != self._reported:  # as while the market is away
            self._reported = text
            echo_text(text, err=True)

    def _find_question(self, name: str) -> AuditorQuestion:
        if name not in self._asked:
            raise NotFound("no open question is about it")
        return self._asked[name]

    def _load_domain(self) -> Domain:
        if not self._domains:
            self._domains.append(self._market.chain().domain)
        return self._domains[0]


@contextmanager
def attend_hearings(
    market: RequesterClient, sealing: SealingKey, mine: OpenMachine, fetcher: Fetcher, folder: Path
) -> Iterator[AuditorHearings]:
    """Answers referees' questions about this auditor's answers, beside its other work, until the `with` block ends."""
    hearings = AuditorHearings(market, sealing, mine, fetcher, folder)
    hearings.start()
    try:
        yield hearings
    finally:
        hearings.stop(STOP_S)
