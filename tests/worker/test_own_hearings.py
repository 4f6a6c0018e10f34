"""A worker's own side of its market's hearings: of two answers at once, after lost requests, and after a restart."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from eth_keys.datatypes import PrivateKey

from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.commands.auditor_hearings import AuditorHearings
from gradmarket.market.errors import RunnerFailed
from gradmarket.market.features.disputes.careful_side import PutQuestion
from gradmarket.market.features.disputes.hearing import judge_operation
from gradmarket.market.features.disputes.questions import (
    NO_RUN,
    DisputeReceipt,
    HearingAnswer,
    HearingQuestion,
    HearingQuestions,
    Reply,
)
from gradmarket.market.features.disputes.referee import Referee
from gradmarket.market.features.disputes.side import Side
from gradmarket.market.features.log.job_log import SKEW_S
from gradmarket.market.messages import Offer
from gradmarket.market.signing import address_of, digest_struct, sign_digest, signer_of
from gradmarket.market.terms import Address, JobId, ReplicaId
from gradmarket.market.wire.hearing_messages import AuditorQuestion, AuditorQuestions, AuditorStatement, HearingReceipt
from gradmarket.market.wire.poll import OfferFields, digest_of
from gradmarket.runner.features.disputes.traced.course import PlanCourse
from gradmarket.sealing import OpenedAnswer, OpenedAnswers, SealingKey
from tests.kit.disputes import DOMAIN, HONEST, LIAR, side_of, terms_of
from tests.offers import offer as make_offer
from tests.patience import PATIENCE_S, wait_until
from tests.worker.test_dispute_hearing import REFEREE, lie_about, redo, task
from worker.features.disputes import hearing_attendance, own_hearings
from worker.features.disputes.kept_receipts import load_receipts
from worker.features.disputes.own_hearings import OwnHearings
from worker.journal import Journal

NAMES = [ReplicaId("a-0-0"), ReplicaId("b-0-0")]


class OpenCourse(PlanCourse):
    """A course like that of a child of this machine for the small task, as long as it lives."""

    def __init__(self) -> None:
        super().__init__(task().operations.plan)
        self.lives, self.inputs = True, None
        self.runner = SimpleNamespace(trace=lambda _inputs: task().trace)
        self._own = side_of(HONEST, task(), task().trace)

    def detail(self, part: int) -> Sequence[bytes]:
        return self._check().detail(part)

    def show(self, part: int, leaf: int) -> Sequence[bytes]:
        return self._check().show(part, leaf)

    def results(self, part: int, leaf: int) -> Sequence[bytes]:
        return self._check().results(part, leaf)

    def _check(self) -> Side:
        if not self.lives:
            raise RunnerFailed("its child has ended")
        return self._own


@contextmanager
def open_course(*_: Any) -> Iterator[OpenCourse]:
    course = OpenCourse()
    yield course
    course.lives = False


@dataclass
class HearingMarket:
    """Referees of as many hearings, as the service asks them; the liar answers each question at once."""

    offers: dict[ReplicaId, Offer]
    loses: int = 0
    """Every so manieth request is lost before it arrives; 0: none."""
    sent: int = 0
    signs: PrivateKey = REFEREE
    """Its receipts."""
    ahead_s: float = 0.0
    """Seconds by which its clock is ahead of the sides'."""
    referees: dict[ReplicaId, Referee] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Also anew, as a service that was restored."""
        lie = lie_about("call", "backward")
        self.liar, self.course = side_of(LIAR, task(), lie.trace), PlanCourse(task().operations.plan)
        for name, offer in self.offers.items():
            terms = replace(terms_of(task(), lie), offer=digest_struct(DOMAIN, offer))
            self.referees[name] = Referee(terms, self.course, 0)

    def hearings(self) -> HearingQuestions:
        asked = ((name, referee) for name, referee in self.referees.items() if not referee.is_decided())
        return HearingQuestions(questions=tuple(self._put(name, referee) for name, referee in asked))

    def _put(self, name: ReplicaId, referee: Referee) -> HearingQuestion:
        asked, question = referee.open_question, referee.question
        return HearingQuestion(
            replica=name,
            sides=referee.terms.sides,
            roots=referee.terms.roots,
            number=asked.number,
            asked=question.asked,
            level=question.level,
            place=question.place,
            until=asked.until,
            signature=sign_digest(REFEREE, digest_struct(DOMAIN, asked)),
        )

    def signed_in(self, _kind: type[Any], method: str, _path: str, **options: Any) -> Any:
        if method == "GET":
            return self.hearings()
        said = HearingAnswer.model_validate(
            {name.removeprefix("hearing-"): value for name, value in options["headers"].items() if "hearing-" in name}
        )
        with options["content"]() as body:
            return self._take(said, body)

    def _take(self, said: HearingAnswer, body: bytes) -> HearingReceipt:
        self.sent += 1
        if self.loses and self.sent % self.loses == 0:
            raise ServiceUnreachable("the connection broke off")
        referee = self.referees[said.replica]
        liar = self.liar.answer(DOMAIN, self.course, referee.terms.dispute, said.number, referee.question)
        for reply in (liar, Reply(said.side, said.number, body, said.signature)):
            referee.receive(reply, 0)
        if (leaf := referee.operation) is not None:
            judge_operation(referee, leaf, redo)
        at = int(time.time() + self.ahead_s)
        job, dispute = self.offers[said.replica].job, referee.terms.dispute
        struct = DisputeReceipt(job, dispute, NO_RUN, said.side, said.number, said.said, at)
        signature = sign_digest(self.signs, digest_struct(DOMAIN, struct))
        return HearingReceipt(number=said.number, at=at, signature=signature)


def open_hearings(market: HearingMarket, folder: Path) -> OwnHearings:
    held = {
        name: SimpleNamespace(
            replica=name,
            lease=SimpleNamespace(job="j", task=str(name)),
            offer=offer,
            prepared=SimpleNamespace(root=digest_of(terms_of(task(), lie_about("call", "backward")).roots[0])),
        )
        for name, offer in market.offers.items()
    }
    context: Any = SimpleNamespace(
        settings=SimpleNamespace(data=folder),
        market=market,
        view=lambda _job: SimpleNamespace(publication=object()),
        determinism_class="",
        domain=DOMAIN,
        address=address_of(HONEST),
        own_signer=signer_of(HONEST),
        signer=address_of(REFEREE),
        journal=Journal(as_json=True),
        attending=set(market.offers),
    )
    files: Any = SimpleNamespace(held=held, parts=lambda replica: folder / f"{replica}.parts")
    return OwnHearings(context, files)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_hearings, "open_course", open_course)
    monkeypatch.setattr(hearing_attendance, "REST_S", 0.0)


def offers(count: int) -> dict[ReplicaId, Offer]:
    return {name: replace(make_offer(1), task=number) for number, name in enumerate(NAMES[:count])}


def play(market: HearingMarket, own: OwnHearings) -> None:
    for _ in range(100):
        if not market.hearings().questions:
            break
        with suppress(ServiceUnreachable):
            own.turn(0.0)
    for referee in market.referees.values():
        assert referee.verdict is not None
        assert referee.verdict.wrong == {address_of(LIAR)}, referee.verdict


def test_two_answers_that_are_heard_at_once_are_both_stood_by(tmp_path: Path) -> None:
    market = HearingMarket(offers(2))
    play(market, open_hearings(market, tmp_path))


def test_an_answer_counts_where_its_receipt_cannot_be_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "receipts").write_bytes(b"a file where their folder would be, as on a full disk")
    market = HearingMarket(offers(1))
    play(market, open_hearings(market, tmp_path))
    assert "Could not keep the receipt" in capsys.readouterr().out


def test_an_answer_that_was_lost_on_its_way_is_brought_again(tmp_path: Path) -> None:
    market = HearingMarket(offers(1), loses=2)
    play(market, open_hearings(market, tmp_path))


def test_a_question_of_which_nothing_can_be_made_silences_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that listens would end, and every later question lose in time."""
    market, read = HearingMarket(offers(1)), PutQuestion.read
    senseless = iter([True, False])

    def read_later(question: Any) -> PutQuestion:
        if next(senseless, False):
            raise OverflowError("int too big to convert")
        return read(question)

    monkeypatch.setattr(PutQuestion, "read", read_later)
    own = open_hearings(market, tmp_path)
    own.start()
    wait_until(lambda: not market.hearings().questions)
    own._context.attending.clear()
    own.stop(PATIENCE_S)


def test_a_worker_that_is_started_anew_goes_on_with_its_hearing(tmp_path: Path) -> None:
    market = HearingMarket(offers(1))
    for _ in range(100):
        if market.hearings().questions:
            open_hearings(market, tmp_path).turn(0.0)
    play(market, open_hearings(market, tmp_path))


def receipts_in(folder: Path) -> list[int]:
    return [kept.number for path in sorted((folder / "receipts").glob("*")) for kept in load_receipts(path).receipts]


def test_a_worker_keeps_each_answer_s_receipt_after_its_replica_is_forgotten(tmp_path: Path) -> None:
    market = HearingMarket(offers(1))
    play(market, open_hearings(market, tmp_path))
    assert receipts_in(tmp_path) == list(range(market.sent))


def test_a_receipt_that_another_signed_is_not_kept_and_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    market = HearingMarket(offers(1), signs=LIAR)
    open_hearings(market, tmp_path).turn(0.0)
    assert receipts_in(tmp_path) == []
    assert "question 0 is not signed by the referee" in capsys.readouterr().out


@pytest.mark.parametrize(("ahead_s", "kept"), [(-1.2, False), (-0.8, True), (0.8, True), (1.2, False)])
def test_a_receipt_of_another_time_is_not_kept_and_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ahead_s: float, kept: bool
) -> None:
    """A restore would excuse that the service hides an earlier answer, and a later one is silence."""
    market = HearingMarket(offers(1), ahead_s=ahead_s * SKEW_S)
    open_hearings(market, tmp_path).turn(0.0)
    assert receipts_in(tmp_path) == ([0] if kept else [])
    assert ("set this machine's clock" in capsys.readouterr().out) is not kept


@pytest.mark.parametrize("answered", [1, 4, 7])
def test_a_service_that_was_restored_may_ask_from_an_earlier_question_on(tmp_path: Path, answered: int) -> None:
    market = HearingMarket(offers(1))
    own = open_hearings(market, tmp_path)
    for _ in range(answered):
        own.turn(0.0)
    market.begin()
    play(market, own)


class AuditorMarket(HearingMarket):
    """The same, of a panel's auditor; `asks` is what its questions have instead."""

    url = "https://market.example"
    asks: ClassVar[dict[str, Any]] = {}
    signs_offers: ClassVar[PrivateKey] = REFEREE

    def task(self, _job: JobId, task: str) -> SimpleNamespace:
        digest = digest_struct(DOMAIN, self.offers[ReplicaId(task)])
        return SimpleNamespace(offer_signature=sign_digest(self.signs_offers, digest))

    def chain(self) -> SimpleNamespace:
        return SimpleNamespace(domain=DOMAIN, rpc=None, chain_id=DOMAIN.chain_id)

    def list_auditor_questions(self, signer: Address, wait_s: float) -> AuditorQuestions:  # at once
        asked = []
        for each in self.hearings().questions if signer == address_of(HONEST) else ():
            put = each.model_dump(exclude={"replica"})
            offer = OfferFields.of(self.offers[each.replica])
            named = {"job": "j", "task": each.replica, "offer": offer, "referee": address_of(REFEREE)}
            asked.append(AuditorQuestion.model_validate(put | named | self.asks))
        return AuditorQuestions(questions=tuple(asked))

    def answer_as_auditor(self, said: AuditorStatement, body: bytes) -> HearingReceipt:
        return self._take(HearingAnswer(**said.model_dump(exclude={"task"}), replica=ReplicaId(said.task)), body)


def attend_as_auditor(market: AuditorMarket, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AuditorHearings:
    for name, offer in market.offers.items():
        root, signer = digest_of(terms_of(task(), lie_about("call", "backward")).roots[0]), address_of(REFEREE)
        opened = OpenedAnswer(job=JobId("j"), offer=OfferFields.of(offer), root=root, signer=signer)
        OpenedAnswers(folder).keep(name, opened)
    own = AuditorHearings(cast(Any, market), SealingKey("me", HONEST), cast(Any, None), cast(Any, None), folder)
    monkeypatch.setattr(own, "open_task", open_course)
    return own


@pytest.mark.parametrize("restarts", [False, True])
def test_an_auditor_of_a_panel_stands_by_its_answer_also_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    market = AuditorMarket(offers(2), loses=3)
    own = attend_as_auditor(market, tmp_path, monkeypatch)
    for _ in range(100):
        if not market.hearings().questions:
            break
        with suppress(ServiceUnreachable):
            own.turn(0.0)
        own = attend_as_auditor(market, tmp_path, monkeypatch) if restarts else own
    assert len(receipts_in(tmp_path)) == market.sent - market.sent // market.loses
    verdicts = [referee.verdict for referee in market.referees.values()]
    assert [verdict.wrong for verdict in verdicts if verdict is not None] == [{address_of(LIAR)}] * 2


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        ({"offer": OfferFields.of(replace(make_offer(1), task=7))}, "about another offer"),
        ({"job": "k"}, "about another offer"),
        ({"referee": address_of(LIAR)}, "signs for job j"),
        ({"task": "another"}, "opened no answer to another"),
    ],
)
def test_an_auditor_answers_no_question_about_another_offer_or_of_another_referee(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asks: Any, words: str
) -> None:
    """It would sign for a task that it never computed, or get receipts that convict nobody."""
    market = AuditorMarket(offers(1))
    own = attend_as_auditor(market, tmp_path, monkeypatch)
    monkeypatch.setattr(AuditorMarket, "asks", asks)
    assert own.turn(0.0) == 0
    assert (market.sent, words in capsys.readouterr().err) == (0, True)
    monkeypatch.setattr(AuditorMarket, "asks", {})
    assert own.turn(0.0) == 1


@pytest.mark.parametrize("signs_offers", [REFEREE, LIAR])
def test_without_a_node_an_auditor_answers_the_signer_of_the_published_offer_alone_and_says_what_is_unproven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], signs_offers: PrivateKey
) -> None:
    """A service that named it a referee of its own would have to publish offers of that key, beside the log's."""
    monkeypatch.setattr(AuditorMarket, "signs_offers", signs_offers)
    own = attend_as_auditor(AuditorMarket(offers(1)), tmp_path, monkeypatch)
    assert own.turn(0.0) == (signs_offers is REFEREE)
    said = capsys.readouterr().err
    assert ("is its service's word" in said) is (signs_offers is REFEREE)
    assert ("did not sign the offer" in said) is (signs_offers is LIAR)
