"""Audits: an auditor computes accepted tasks again, and a wrong answer is revoked; its round may be taken back."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gradmarket.market.rules.assignment import Mixable
from gradmarket.market.terms import Hash
from gradmarket.market.views.trust_views import AuditView
from requester.context import Context
from requester.feature import Feature, MergeWatch
from requester.features.audits import (
    audit,
    audit_draws,
    audit_routes,
    audit_rows,
    audited_classes,
    own_auditor,
    referrals,
    rollback,
)
from requester.features.audits.audit_kind import audit_kinds_of, list_auditing_features
from requester.features.audits.audit_tables import Audit, AuditedClass
from requester.features.audits.audit_views import load_audit_sketch, view_audit
from requester.settings import RequesterSettings
from requester.store import jobs
from requester.store.in_hand import TaskInHand
from requester.store.locks import retry_on_conflict
from requester.store.review import REFERRED, ClassLimits, Clearance, Review, is_reviewed
from requester.store.stored_times import shift_times
from requester.store.tables import Account, Job, Replica, Round, Task, Worker
from requester.store.work import RowReader, Work


class AuditReview(Review):
    def refer_task(self, work: Work, task: Task, now: float) -> None:
        audit_draws.create_audit(work, task, 1.0, REFERRED, now)

    def take_answer(self, work: Work, hand: TaskInHand, load_leaves: Callable[[], Sequence[Hash]], now: float) -> bool:
        audited = is_reviewed(hand.job)
        if audited:
            audit_draws.draw_audit(work, hand, load_leaves(), now)
        return audited

    def may_be_a_lie(self, job: Job, task: Task) -> bool:
        return audit_draws.may_be_a_lie(job, task)

    def check_divergence(self, work: Work, job: Job, task: Task, now: float) -> None:
        if jobs.load_spec(job).verifier.scored or audit_draws.may_be_a_lie(job, task):
            audit_draws.order_suspect_audit(work, task, now)

    def has_refuted_divergence(self, reader: RowReader, job_id: str, number: int) -> bool:
        return audit_rows.has_audit_for(reader, job_id, number, audit_draws.REFUTED)

    def must_pay_wait(self, reader: RowReader, job: Job, replica: Replica) -> bool:
        return any(kind.must_pay_wait(reader, job, replica) for kind in audit_kinds_of(reader))

    def settle_waiting_pay(self, work: Work, job: Job, sign: Callable[[Job, Account], bytes], now: float) -> None:
        for kind in audit_kinds_of(work):
            kind.settle_waiting_pay(work, job, sign, now)

    def record_settled_answers(self, work: Work, hands: Iterable[TaskInHand], now: float) -> None:
        referrals.record_settled_answers(work, hands, now)

    def find_first_open_round(self, reader: RowReader, job_id: str) -> int | None:
        return audit_rows.find_earliest_audited_round(reader, job_id)

    def is_under_way(self, reader: RowReader, tasks: Sequence[str]) -> bool:
        return audit_rows.under_way(reader, tasks)

    def limit_classes(self, reader: RowReader, job: Job, now: float, asking: Sequence[Worker]) -> ClassLimits:
        return audited_classes.limit_classes(reader, job, now, asking)

    def list_preferred_classes(self, reader: RowReader, job: Job, now: float) -> frozenset[str] | None:
        return audited_classes.list_preferred_classes(reader, job, now)

    def list_mixable_classes(self, reader: RowReader, job: Job, now: float) -> Mixable | None:
        return audited_classes.list_mixable_classes(reader, job, now)

    def was_referred(self, reader: RowReader, task: Task) -> bool:
        return task.plan.referred and reader.get(Audit, task.id) is not None

    def find_clearance(self, reader: RowReader, job: Job) -> Clearance | None:
        found = (kind.find_clearance(reader, job) for kind in audit_kinds_of(reader))
        return next((clearance for clearance in found if clearance is not None), None)

    def compute_longest_wait(self, reader: RowReader, job: Job, since: int, now: float) -> float:
        return audit_rows.compute_longest_wait(reader, job, since, now)

    def sum_awardable_units(self, reader: RowReader, job_id: str) -> int:
        return audit_rows.sum_awardable_units(reader, job_id)

    def describe_waits(self, reader: RowReader, job_id: str, now: float, referred_s: float | None = None) -> str:
        return audit_rows.describe_waiting_audits(reader, job_id, now, referred_s)

    def describe_disagreement(self, reader: RowReader, job: Job) -> str:
        return audit_rows.describe_disagreement(reader, job)

    def view_audit(self, reader: RowReader, task: Task, published: bool) -> tuple[AuditView | None, bool]:
        row = reader.get(Audit, task.id)
        if row is None:
            return None, False
        more: dict[str, object] = {}
        for feature in list_auditing_features(reader) if published else ():
            more |= feature.describe_audit(reader, row)
        view = view_audit(row, published, audit_sketch=load_audit_sketch(reader, task, row), more=more)
        return view, published and row.reason == REFERRED


class AuditsFeature(Feature):
    name = "audits"
    needs = ("reputation",)
    stages = (audit, rollback)
    routers = (audit_routes.router,)
    review = AuditReview()
    claimed_tables = (Audit,)

    def watch_merge(self, _reader: RowReader, job: Job, used: Sequence[Task]) -> MergeWatch | None:
        return audit_draws.watch_lengths(job, used)

    def round_closed(self, work: Work, job: Job, row: Round, now: float) -> None:
        if is_reviewed(job):
            work.notify("audit", "rollback")

    def bound_times(self, work: Work, now: float) -> int:
        """Shifts the times by which an auditor counts as present, and an audit or a class as given up."""
        ages = (AuditedClass.asked_at, Audit.created_at, Audit.claimed_at, Audit.ended_at)
        return sum(shift_times(work, now, age) for age in ages)

    @contextmanager
    def serve_beside(self, context: Context, here: str) -> Iterator[None]:
        """Runs the service's own auditor, if it has one."""
        renew_waits(context)
        command = own_auditor.build_command(context, here)
        if command is None:
            yield
        else:
            with own_auditor.OwnAuditor(context, command, context.settings.data / "auditor.log"):
                yield

    def describe_start(self, settings: RequesterSettings) -> Mapping[str, str]:
        return {"audit": own_auditor.describe_own_auditor(settings.auditor)}


@retry_on_conflict
def renew_waits(context: Context) -> None:
    """Keeps a class from counting as one without auditor because no auditor could ask while the service was away."""
    with context.begin() as work:
        audited_classes.renew_classes(work, now := context.clock())
        for kind in audit_kinds_of(work):
            kind.renew_waits(work, now)
