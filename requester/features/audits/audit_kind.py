"""Kinds of audits, which features add: audits that do not just repeat a whole task and compare roots."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sqlalchemy import ColumnElement

from gradmarket.market.features.audits.auditing import Turn
from gradmarket.market.terms import Hash
from gradmarket.market.wire.audit_messages import AuditAnswer
from requester.context import Context
from requester.feature import Feature, features_of
from requester.features.audits.audit_tables import Audit
from requester.store.in_hand import TaskInHand
from requester.store.review import Clearance
from requester.store.tables import Account, Job, Replica, Task
from requester.store.work import RowReader, Work


@dataclass(frozen=True)
class OtherWork:
    """A task to be run as run `run` where no audit is due; `fields`: those of its AuditWork that give the purpose."""

    task: str
    run: int
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Asker:
    """An auditor's machine that asks for work, by the name that it chose, and the operator whose token it has."""

    auditor: str
    operator: str
    determinism_class: str


class AuditKind:
    """By default it changes nothing. Each method looks at the audit's row, or at the job's specification, by itself."""

    def build_awaited(self, now: float) -> Mapping[str, ColumnElement[bool]]:
        """Called when a due audit is looked for; returns the conditions under which audits wait, by their words."""
        return {}

    def choose_rate(self, reader: RowReader, hand: TaskInHand, drawn: float) -> tuple[float, str] | None:
        """Called in the accepting transaction; returns the probability of an audit and, above `drawn`, the reason."""
        return None

    def narrow_audit(
        self, work: Work, hand: TaskInHand, audit: Audit, link: Hash, leaves: Sequence[Hash], now: float
    ) -> None:
        """Called in the accepting transaction for an audit that need not repeat the whole task."""

    def describe_claim(self, context: Context, work: Work, task: Task, audit: Audit) -> Mapping[str, object]:
        """Called in the transaction that gives the audit to an auditor; returns fields of its AuditWork."""
        return {}

    def store_answer(self, work: Work, task: Task, audit: Audit, answer: AuditAnswer) -> None:
        """Called in the transaction that takes an auditor's answer, before it counts. Raises Refused."""

    def order_another_run(self, context: Context, work: Work, task: Task, audit: Audit) -> None:
        """Called in the same transaction where one run was not enough."""

    def is_answer_right(self, work: Work, audit: Audit, now: float) -> bool | None:
        """Called in the judging transaction; returns whether the accepted answer stands, None where roots decide it."""
        return None

    def find_other_work(self, work: Work, asker: Asker, now: float) -> OtherWork | None:
        """Called in the claiming transaction where no audit is due; returns other work for this auditor, if any."""
        return None

    def find_owed_work(self, work: Work, asker: Asker) -> OtherWork | None:
        """Called in the claiming transaction before anything else; returns work that others wait for, if any."""
        return None

    def find_turn(self, reader: RowReader, asker: Asker, now: float) -> Turn | None:
        """Called in the claiming transaction; returns the job of an audit that `take_turn` would give, if any."""
        return None

    def take_turn(self, work: Work, asker: Asker, now: float) -> OtherWork | None:
        """Called in the claiming transaction where that job's turn has come; gives an audit of this kind's own."""
        return None

    def renew_claim(self, work: Work, task_id: str, asker: Asker, now: float) -> None:
        """Called when an auditor reports that it goes on computing a task, of this kind or not."""

    def describe_lack(self, reader: RowReader, job: Job, now: float) -> str:
        """Returns why no audit of the job can be run just now, whichever auditors ask; empty where one can."""
        return ""

    def renew_waits(self, work: Work, now: float) -> None:
        """Called when the service starts: while it was away, no auditor could answer in time."""

    def record_pass(self, work: Work, job: Job, audit: Audit, now: float) -> None:
        """Called in the judging transaction of an audit that found an accepted answer right."""

    def accuse_workers(
        self, work: Work, job: Job, task: Task, audit: Audit, wrong: Sequence[Replica], now: float
    ) -> None:
        """Called in the judging transaction once a task is revoked; `wrong` were paid for it."""

    def must_pay_wait(self, reader: RowReader, job: Job, replica: Replica) -> bool:
        """Called in the accepting transaction; returns whether the answer is paid only once a test cleared it."""
        return False

    def settle_waiting_pay(self, work: Work, job: Job, sign: Callable[[Job, Account], bytes], now: float) -> None:
        """Called when one of the job's audits is over, and when it ends; `sign` returns a voucher's signature."""

    def release_blobs(self, work: Work, task: Task, audit: Audit, now: float) -> bool:
        """Called when an audit is over, or begins anew; returns whether it released blobs."""
        return False

    def find_clearance(self, reader: RowReader, job: Job) -> Clearance | None:
        """Called when candidates of a job are gathered; returns the job's Clearance, if its audits clear operators."""
        return None


class AuditingFeature(Feature):
    """A feature that has a kind of audits."""

    audit_kind: ClassVar[AuditKind]

    def describe_audit(self, reader: RowReader, row: Audit) -> Mapping[str, object]:
        """Called while an audit is read by the API; returns optional fields of its AuditView."""
        return {}


def list_auditing_features(reader: RowReader) -> list[AuditingFeature]:
    """Returns the features that have kinds of audits, in the order in which they are asked."""
    return [feature for feature in features_of(reader) if isinstance(feature, AuditingFeature)]


def audit_kinds_of(reader: RowReader) -> list[AuditKind]:
    return [feature.audit_kind for feature in list_auditing_features(reader)]
