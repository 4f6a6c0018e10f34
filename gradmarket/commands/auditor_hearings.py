"""A panel auditor's own side of its job's hearings: each is of an answer that it opened to its panel."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from contracts.events import opened_job
from gradmarket.auditor import OpenMachine
from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.features.disputes.careful_side import PutQuestion
from gradmarket.market.features.disputes.questions import Reply, digest_reply
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import signer_of
from gradmarket.market.terms import Address, blob_digest
from gradmarket.market.wire.hearing_messages import AuditorQuestion, AuditorStatement, HearingReceipt
from gradmarket.market.wire.poll import hash_of
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from gradmarket.runner.features.disputes.tracing_runner import TracingRunner
from gradmarket.sealing import OpenedAnswer, OpenedAnswers, SealingKey
from gradmarket.terminal import echo_text
from worker import Untrusted
from worker.features.disputes.hearing_attendance import HearingAttendance, OwnAnswer
from worker.features.disputes.kept_receipts import find_receipts_file
from worker.money.chain_view import choose_rpc, connect_to_deployment

STOP_S: Final = 1.0
"""Seconds for which a stopping auditor waits for an answer under way; longer ones are abandoned."""


UNPROVEN: Final = (
    "That {signer} is the referee of job {job} is its service's word: without a node of the chain (--rpc) receipts of "
    "another key would convict nobody."
)


class AuditorHearings(HearingAttendance[str]):
    """Always listens; answers are named by their tasks.

    It defends the answer that it opened itself, before the signer that the contract names for its job: of a question
    about another offer, or of another referee, whose receipts would convict nobody, it says nothing.
    """

    refusals = (ServiceProblem,)

    def __init__(
        self,
        market: RequesterClient,
        sealing: SealingKey,
        mine: OpenMachine,
        fetcher: Fetcher,
        folder: Path,
        rpc: str | None = None,
    ) -> None:
        super().__init__()
        self._market, self._sealing, self._mine, self._fetcher = market, sealing, mine, fetcher
        self._folder, self._reported = folder, ""
        self._asked: dict[str, AuditorQuestion] = {}
        self._opened, self._rpc = OpenedAnswers(folder), rpc
        self._signers: dict[int, Address] = {}
        self._facts = list[ChainFacts]()

    def list_questions(self, wait_s: float) -> Iterator[tuple[str, PutQuestion]]:
        questions = self._market.list_auditor_questions(self._sealing.signer, wait_s).questions
        self._asked = {str(each.task): each for each in questions}
        return ((name, PutQuestion.read(each)) for name, each in self._asked.items())

    def list_attended(self) -> None:
        return None

    def find_answer(self, name: str, put: PutQuestion) -> OwnAnswer:  # noqa: ARG002  # it knows what it opened
        opened, asked = self._opened.find(name), self._find_question(name)
        if (asked.job, asked.offer) != (opened.job, opened.offer):
            raise Refused(f"the question is about another offer of {name} than this auditor opened its answer to")
        if asked.referee != (referee := self._find_referee(name, opened)):
            raise Refused(f"{asked.referee} asks, and {referee} signs for job {opened.job}")
        domain, parts = self._load_facts().domain, self._folder / f"{blob_digest(name.encode())[-32:]}.parts"
        own = self._sealing.signer, signer_of(self._sealing.key)
        receipts = find_receipts_file(self._folder, domain.instance, opened.offer.job)
        offer, root = opened.offer.struct(), hash_of(opened.root)
        return OwnAnswer(domain, asked.task, offer, root, *own, referee, parts, receipts)

    def _find_referee(self, name: str, opened: OpenedAnswer) -> Address:
        """Returns the job's signer in the contract; without a node to ask, the one that its service named before, if
        that signed the offer as its service publishes it, which is a leaf of the log that all see.

        Raises ChainError, and Refused where the offer is of another publication than the contract's, or of another
        signer.
        """
        job = opened.offer.job
        if job not in self._signers:
            facts = self._load_facts()
            try:
                node = choose_rpc(self._rpc, facts, self._market.url)
            except Untrusted:
                self._check_signer(name, opened)
                self._signers[job] = opened.signer
                self.report_progress(UNPROVEN.format(signer=opened.signer, job=opened.job), None)
                return opened.signer
            found = opened_job(connect_to_deployment(node, facts), job)
            if found.spec_digest != opened.offer.spec:
                raise Refused(f"the contract opened job {opened.job} for another publication")
            self._signers[job] = found.signer
        return self._signers[job]

    def _check_signer(self, name: str, opened: OpenedAnswer) -> None:
        signature = self._market.task(opened.job, name).offer_signature
        if not is_signed_by(self._load_facts().domain, opened.offer.struct(), signature, opened.signer):
            raise Refused(
                f"{opened.signer}, which the service names, did not sign the offer of {name} that it publishes"
            )

    @contextmanager
    def open_task(self, name: str) -> Iterator[TracedCourse]:
        opened = self._opened.find(name)
        publication, offer = self._market.publication(opened.job), opened.offer.struct()
        if hash_of(publication.digest) != opened.offer.spec:
            raise Refused(f"job {opened.job} is not published as the offer of {name} names it")
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

    def _load_facts(self) -> ChainFacts:
        if not self._facts:
            self._facts.append(self._market.chain())
        return self._facts[0]


@contextmanager
def attend_hearings(
    market: RequesterClient,
    sealing: SealingKey,
    mine: OpenMachine,
    fetcher: Fetcher,
    folder: Path,
    rpc: str | None = None,
) -> Iterator[AuditorHearings]:
    """Answers referees' questions about this auditor's answers, beside its other work, until the `with` block ends.

    `rpc`: the auditor's own node of the chain.
    """
    hearings = AuditorHearings(market, sealing, mine, fetcher, folder, rpc)
    hearings.start()
    try:
        yield hearings
    finally:
        hearings.stop(STOP_S)
