"""The receipts of answers to a referee: what they show of a service that hides an answer, a hearing or a task. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pydantic import Field

from gradmarket.market.features.disputes.questions import DisputeReceipt, encode_run
from gradmarket.market.features.log.job_log import SKEW_S, encode_answers
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.fields import AddressField, HashField, SignatureField
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import Domain
from gradmarket.market.terms import TASK_ENDED, Address, Hash, TaskId
from gradmarket.market.wire import Wire
from gradmarket.market.wire.evidence import PublishedEvidence
from gradmarket.market.wire.hearing_messages import SILENCE, Number, PublishedHearing, name_dispute
from gradmarket.market.wire.log_proofs import PublishedRestart
from gradmarket.market.wire.poll import hash_of


class KeptReceipt(Wire):
    """A side's proof that the referee of `sides`, which answered the offer with payloads of `roots`, has its answer."""

    job: Number
    """The chain's number of the job."""
    task: TaskId = Field(max_length=64)
    """The service's name of the task, which is not signed."""
    offer: HashField
    sides: tuple[AddressField, AddressField]
    roots: tuple[HashField, HashField]
    run: Number | None = None
    side: AddressField
    number: Number
    said: HashField
    at: Number
    signature: SignatureField


OTHER_JOB: Final = "of another job"
UNDER_WAY: Final = "of audits that may not be over, whose hearings nobody sees yet"
UNSIGNED: Final = "that the job's signer did not sign, which show nothing"
MOST_QUESTIONS: Final = 1000
"""Of a hearing that can be published."""


@dataclass(frozen=True)
class ReceiptScope:
    """The job that receipts are held against. `job`: the chain's number of it. `leaves`: of its log, up to the signed
    head. `restores`: those that the log admits (job_log.list_restores)."""

    domain: Domain
    signer: Address
    job: int
    leaves: Sequence[Hash] = ()
    restores: Sequence[PublishedRestart] = ()


class JudgedReceipt(NamedTuple):
    """`fault`: what is hidden, by its signer's own word. `note`: why the receipt shows nothing. Both are empty where
    its answer is shown."""

    fault: str = ""
    note: str = ""


def receipt_struct(kept: KeptReceipt) -> DisputeReceipt:
    """Returns the struct that the referee signed."""
    dispute, run = name_dispute(kept.offer, kept.sides, kept.roots), encode_run(kept.run)
    return DisputeReceipt(kept.job, dispute, run, kept.side, kept.number, kept.said, kept.at)


def judge_receipt(scope: ReceiptScope, kept: KeptReceipt, shown: PublishedEvidence | None) -> JudgedReceipt:
    """Holds a receipt against what is published of its task; None where nothing is."""
    if not is_signed_by(scope.domain, receipt_struct(kept), kept.signature, scope.signer):
        return JudgedReceipt(note=UNSIGNED)
    if kept.job != scope.job:
        return JudgedReceipt(note=OTHER_JOB)
    if not (fault := _find_fault(kept, shown)):
        return JudgedReceipt()
    heard = () if shown is None else ((each.sides, each.run) for each in shown.hearings or ())
    may_be_secret = kept.run is not None and shown is not None and shown.state not in TASK_ENDED
    if may_be_secret and (kept.sides, kept.run) not in heard:
        return JudgedReceipt(note=UNDER_WAY)
    # a restore after the answer, from a copy without the hearing's end, admits the loss of receipts as it does that of
    # heads (job_log.find_admission)
    later = [restore for restore in scope.restores if kept.at <= restore.at + SKEW_S]
    ends = {hash_leaf(data) for data in list_answer_counts(kept.offer, kept.sides, kept.run)} if later else set[bytes]()
    restore = next((one for one in later if ends.isdisjoint(scope.leaves[: one.number])), None)
    if restore is not None:
        lost = f"from before a restore at Unix time {restore.at}, as leaf {restore.number} of the log admits"
        return JudgedReceipt(note=f"{lost}, of answers that may have been lost then")
    return JudgedReceipt(fault=f"{fault}: its receipt is signed 0x{kept.signature.hex()}")


def _find_fault(kept: KeptReceipt, shown: PublishedEvidence | None) -> str:
    if shown is None or shown.offer_digest != kept.offer:
        return f"no task of offer 0x{kept.offer.hex()} is shown, and {kept.side} answered in a hearing of it"
    dispute = receipt_struct(kept).dispute
    hearings = (each for each in shown.hearings or () if each.run == kept.run)
    named = [each for each in hearings if name_dispute(kept.offer, each.sides, [*map(hash_of, each.roots)]) == dispute]
    if not named:
        return f"the hearing of {' and '.join(kept.sides)} is hidden, and {kept.side} answered in it"
    showing = list[tuple[PublishedHearing, int]]()
    for each in named:
        answers = each.questions[kept.number].answers if kept.number < len(each.questions) else ()
        showing += [(each, said.at) for said in answers if (said.side, said.said) == (kept.side, kept.said)][:1]
    if not showing:
        return f"question {kept.number}: the answer of {kept.side} is hidden"
    if kept.at not in (times := [at for _, at in showing]):
        taken = f"is shown at Unix time {times[0]}, and was taken at {kept.at}"
        return f"question {kept.number}: the answer of {kept.side} {taken}"
    last = [each.ruling for each, _ in showing if kept.number == len(each.questions) - 1]
    if any(ruling is not None and ruling.why == SILENCE and kept.side in ruling.wrong for ruling in last):
        return f"question {kept.number}: {kept.side} answered it, and lost by silence"
    return ""


def list_answer_counts(
    offer: Hash, sides: tuple[Address, Address], run: int | None, least: tuple[int, int] = (0, 0)
) -> Iterator[bytes]:
    """Yields the leaves by which each side answered at least so many questions in the hearing of this run, up to
    MOST_QUESTIONS: sides answer in turn, so their numbers differ by one at most."""
    for one in range(least[0], MOST_QUESTIONS + 1):
        for other in range(max(one - 1, least[1]), one + 2):
            yield encode_answers(offer, *sides, run, one, other)


def group_receipts(receipts: Iterable[KeptReceipt]) -> dict[Hash, list[KeptReceipt]]:
    """Returns the receipts by their offers."""
    grouped = dict[Hash, list[KeptReceipt]]()
    for kept in receipts:
        grouped.setdefault(kept.offer, []).append(kept)
    return grouped
