"""Whether an accepted answer may be taken back: the questions that the kernel asks a feature, and the defaults.

By default no auditor computes an answer again, and acceptance stands.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gradmarket.market.rules.assignment import Mixable
from gradmarket.market.terms import Hash, Plan
from gradmarket.market.views.trust_views import AuditView
from requester.store import jobs
from requester.store.in_hand import TaskInHand
from requester.store.tables import Account, Job, Replica, Task, Worker
from requester.store.work import RowReader, Work

REFERRED: Final = "it was to be settled before anything is accepted"
"""The reason of an audit of a task that its vote left open."""


@dataclass(frozen=True)
class Clearance:
    """The operators that audits have cleared in a job, and the places that others get beside a number of known ones."""

    operators: Collection[str]
    count_trials: Callable[[int], int]
    begun: Collection[str] = ()
    """Other operators whose answers looked good so far: every second place goes to one of them."""


@dataclass(frozen=True)
class ClassLimits:
    """The determinism classes that a job may settle on, and the plan by which a class has enough workers."""

    plan: Plan
    allowed: frozenset[str] | None = None
    """None: all classes."""
    barred: frozenset[str] = frozenset()

    def admit(self, name: str | None) -> bool:
        return name not in self.barred and (self.allowed is None or name in self.allowed)


class Review:
    """The feature that computes answers again, asked about audited jobs alone. Admission refuses these without one."""

    def refer_task(self, work: Work, task: Task, now: float) -> None:
        """Called in the judging transaction, just before the task is REFERRED to an auditor."""

    def take_answer(self, work: Work, hand: TaskInHand, load_leaves: Callable[[], Sequence[Hash]], now: float) -> bool:
        """Called in the transaction that accepts the task; `load_leaves` loads the leaves of the accepted answer.

        Returns whether the job's answers may be taken back.
        """
        return False

    def may_be_a_lie(self, job: Job, task: Task) -> bool:
        """Called for an answer that diverged; returns whether an audit decides whether it is right."""
        return False

    def check_divergence(self, work: Work, job: Job, task: Task, now: float) -> None:
        """Called in the transaction in which an answer that diverged pauses the job."""

    def has_refuted_divergence(self, reader: RowReader, job_id: str, number: int) -> bool:
        """Returns whether an auditor's own answer to a task of the round did not diverge as a worker's did."""
        return False

    def must_pay_wait(self, reader: RowReader, job: Job, replica: Replica) -> bool:
        """Called in the accepting transaction; returns whether the answer is paid only once a test cleared it."""
        return False

    def settle_waiting_pay(self, work: Work, job: Job, sign: Callable[[Job, Account], bytes], now: float) -> None:
        """Called in the transaction in which the job ends; `sign` returns a voucher's signature."""

    def record_settled_answers(self, work: Work, hands: Iterable[TaskInHand], now: float) -> None:
        """Called in the transaction in which payloads arrived, with the tasks that they answer."""

    def find_first_open_round(self, reader: RowReader, job_id: str) -> int | None:
        """Returns the first round that an audit under way may take back; None where no audit is under way."""
        return None

    def is_under_way(self, reader: RowReader, tasks: Sequence[str]) -> bool:
        """Returns whether one of these tasks is being computed again."""
        return False

    def limit_classes(self, reader: RowReader, job: Job, now: float, asking: Sequence[Worker]) -> ClassLimits:
        """Called before workers that are `asking` are drawn; returns the classes that the job may settle on."""
        return ClassLimits(jobs.load_spec(job).plan())

    def list_preferred_classes(self, reader: RowReader, job: Job, now: float) -> frozenset[str] | None:
        """Called where a job looks for a class; returns the preferred classes, None where it has none."""
        return None

    def list_mixable_classes(self, reader: RowReader, job: Job, now: float) -> Mixable | None:
        """Returns the pairs of classes that may work side by side in the job; None where its verifier decides."""
        return None

    def was_referred(self, reader: RowReader, task: Task) -> bool:
        """Called for an attempt that failed; returns whether it had to be settled before anything is accepted."""
        return False

    def find_clearance(self, reader: RowReader, job: Job) -> Clearance | None:
        """Called when candidates of a job are gathered; returns the operators that the job's audits have cleared."""
        return None

    def compute_longest_wait(self, reader: RowReader, job: Job, since: int, now: float) -> float:
        """Returns the most seconds that the job's audits of rounds from `since` on wait for an auditor."""
        return 0.0

    def sum_awardable_units(self, reader: RowReader, job_id: str) -> int:
        """Returns the most units that the audits under way can award to rejected answers."""
        return 0

    def describe_waits(self, reader: RowReader, job_id: str, now: float, referred_s: float | None = None) -> str:
        """Called for a running job without an open task; names the cause for which its merge waits, or nothing.

        `referred_s`: of a round under way, in which referred tasks alone wait visibly, once they did for these seconds.
        """
        return ""

    def describe_disagreement(self, reader: RowReader, job: Job) -> str:
        """Returns a text where audits found several separate workers' answers wrong and none right."""
        return ""

    def view_audit(self, reader: RowReader, task: Task, published: bool) -> tuple[AuditView | None, bool]:
        """Called while a task is read by the API; returns the view of its audit, and whether that settled the task.

        `published`: the task's answer may be shown (store.disclosure).
        """
        return None, False


def is_reviewed(job: Job) -> bool:
    """Returns whether an answer that the job accepts may be taken back; else it is final once it is merged."""
    return jobs.load_spec(job).audited


def review_of(reader: RowReader) -> Review:
    reviews: list[Review | None] = [feature.review for feature in reader.session.info["features"]]
    return next((review for review in reviews if review is not None), Review())
