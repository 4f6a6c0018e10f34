"""Audits: an auditor computes accepted tasks again, and a wrong answer is revoked; its round may be taken back."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gradmarket.market.terms import Hash
from gradmarket.market.views.trust_views import AuditView
from requester.context import Context
from requester.feature import Feature
from requester.features.audits import audit, audit_draws, audit_routes, audit_rows, own_auditor, referrals, rollback
from requester.features.audits.audit_kind import audit_kinds_of, list_auditing_features
from requester.features.audits.audit_views import load_audit_sketch, view_audit
from requester.settings import RequesterSettings
from requester.store import audited_classes
from requester.store.in_hand import TaskInHand
from requester.store.retries import retry_on_conflict
from requester.store.review import REFERRED, Clearance, Review
from requester.store.tables import Account, Audit, Job, Replica, Task
from requester.store.work import RowReader, Work


class AuditReview(Review):
    def refer_task(self, work: Work, task: Task, now: float) -> None:
        audit_draws.create_audit(work, task, 1.0, REFERRED, now)

    def order_audit(self, work: Work, hand: TaskInHand, leaves: Sequence[Hash], now: float) -> None:
        audit_draws.draw_audit(work, hand, leaves, now)

    def suspect_divergence(self, work: Work, job: Job, task: Task, now: float) -> bool:
        suspected = audit_draws.may_be_a_lie(job, task)
        if suspected:
            audit_draws.order_suspect_audit(work, task, now)
        return suspected

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

    def find_clearance(self, reader: RowReader, job: Job) -> Clearance | None:
        found = (kind.find_clearance(reader, job) for kind in audit_kinds_of(reader))
        return next((clearance for clearance in found if clearance is not None), None)

    def compute_longest_wait(self, reader: RowReader, job: Job, since: int, now: float) -> float:
        return audit_rows.compute_longest_wait(reader, job, since, now)

    def sum_awardable_units(self, reader: RowReader, job_id: str) -> int:
        return audit_rows.sum_awardable_units(reader, job_id)

    def describe_waits(self, reader: RowReader, job_id: str, now: float) -> str:
        return audit_rows.describe_waiting_audits(reader, job_id, now)

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
    stages = (audit, rollback)
    routers = (audit_routes.router,)
    review = AuditReview()

    @contextmanager
    def serve_beside(self, context: Context, here: str) -> Iterator[None]:
        """Runs the service's own auditor, if it is to have one."""
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
