"""Seats auditors in panels, and takes their sealed and opened answers (market.features.auditors)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlalchemy import ColumnElement

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.features import auditors
from gradmarket.market.features.audits import class_checks
from gradmarket.market.features.audits.auditing import Turn
from gradmarket.market.job_parts import AuditPanel
from gradmarket.market.terms import AuditState, Digest, PanelSeatState
from gradmarket.market.wire.audit_messages import PanelOpening, PanelSeal
from requester.context import Context
from requester.feature import features_of
from requester.features.auditors import panel_rows
from requester.features.auditors.panel_rows import PanelSeat
from requester.features.audits import audit_rows
from requester.features.audits.audit_kind import Asker, AuditKind, OtherWork
from requester.features.audits.audit_tables import Audit
from requester.store import jobs
from requester.store.locks import lock_row
from requester.store.tables import Job, Task
from requester.store.work import RowReader, Work, record_event

SEAT_LEASES: Final = 4
"""The longest time for which a seat is held, in leases of its task."""
MOST_DOUBLED: Final = 6
WRONG: Final = "it opened another answer than the panel's"
LOST: Final = "a referee found another answer than the one it opened to be right"
NONE_STANDS: Final = "its answer did not stand before a referee"
AWAITED: Final = (
    "a panel of auditors of separate operators (gradmarket auditor run, each with a token of its own); one that nobody "
    f"joins for {class_checks.UNHEARD_S / 60:.0f} min lapses"
)
SHORT: Final = (
    "its panels take auditors of {} separate operators, and {} may audit it: make tokens (gradmarket token create NAME "
    "--role audit), and run an auditor with each (gradmarket auditor run --token)"
)
WITHHELD: Final = "it sealed an answer, and did not open it in time"


class PanelAudits(AuditKind):
    """Audits that several auditors of separate operators decide; no auditor gets one alone."""

    def build_awaited(self, now: float) -> Mapping[str, ColumnElement[bool]]:
        return {AWAITED: panel_rows.is_panels()}

    def take_turn(self, work: Work, asker: Asker, now: float) -> OtherWork | None:
        for audit in _list_joinable_panels(work, asker, now):
            task, audit = lock_row(work, Task, audit.task_id), lock_row(work, Audit, audit.task_id)
            turn = _find_turn(work, audit, asker, now) if audit.state == AuditState.DUE else "wait"
            if turn == "wait":
                continue
            if turn == "join":
                members = [seat.member for seat in panel_rows.list_seats(work, task.id, audit.runs)]
                seat = work.get(PanelSeat, (task.id, audit.runs, asker.operator))
                if seat is None:
                    seat = PanelSeat(task_id=task.id, run=audit.runs, operator=asker.operator, job_id=task.job_id)
                seat.number, seat.auditor = auditors.count_taken(members), asker.auditor
                seat.state = PanelSeatState.TAKEN
                seat.claimed_at, seat.claimed_until = now, now + task.offer.lease_seconds
                work.add(seat)
                audit.claimed_at = now
                work.flush()
            return OtherWork(task.id, audit.runs, {"panel": "open" if turn == "open" else "seal"})
        return None

    def find_owed_work(self, work: Work, asker: Asker) -> OtherWork | None:
        """Returns a sealed answer that this machine must open: its time is short, and another task may use it up."""
        asked = panel_rows.list_seals_to_open(work, asker.determinism_class, asker.operator, asker.auditor)
        return next((OtherWork(audit.task_id, audit.runs, {"panel": "open"}) for audit in asked), None)

    def find_turn(self, reader: RowReader, asker: Asker, now: float) -> Turn | None:
        audit = next(_list_joinable_panels(reader, asker, now), None)
        job = None if audit is None else reader.get_one(Job, audit.job_id)
        return None if audit is None or job is None else Turn(job.id, job.token, audit.created_at)

    def renew_claim(self, work: Work, task_id: str, asker: Asker, now: float) -> None:
        audit, task = work.get(Audit, task_id), work.get(Task, task_id)
        if audit is None or task is None:
            return
        panel_rows.renew_openings(work, asker.operator, asker.auditor, now + task.offer.lease_seconds, now)
        seat = work.get(PanelSeat, (task_id, audit.runs, asker.operator))
        if seat is None or seat.auditor != asker.auditor or seat.claimed_until is None:
            return
        held_s = min(class_checks.HELD_S, SEAT_LEASES * task.offer.lease_seconds)  # others of the panel wait for it
        if (seat.claimed_at or 0.0) > now - held_s and seat.claimed_until >= now:
            seat.claimed_until = now + task.offer.lease_seconds

    def renew_waits(self, work: Work, now: float) -> None:
        panel_rows.renew_seats(work, now + class_checks.GRACE_S)
        panel_rows.renew_panels(work, now + class_checks.GRACE_S)

    def describe_lack(self, reader: RowReader, job: Job, now: float) -> str:
        panel = jobs.load_spec(job).panel
        if panel is None or (have := panel_rows.count_operators(reader, now)) >= panel.count:
            return ""
        return SHORT.format(panel.count, have)


def _list_joinable_panels(reader: RowReader, asker: Asker, now: float) -> Iterator[Audit]:
    """Yields the audits that have something for this machine to compute, in turn over jobs and their requesters."""
    waiting = panel_rows.list_waiting_panels(reader, asker.determinism_class, asker.operator)
    for job in audit_rows.order_jobs(reader, waiting, now):
        for audit in panel_rows.list_due_panels(reader, job, asker.determinism_class, asker.operator):
            if _find_turn(reader, audit, asker, now) != "wait":
                yield audit


def _panel_of(reader: RowReader, audit: Audit) -> AuditPanel:
    panel = jobs.spec_of(reader, reader.get_one(Task, audit.task_id)).panel
    if panel is None:
        raise NotFound(f"no panel audits task {audit.task_id[:80]}")
    return panel


def _find_turn(reader: RowReader, audit: Audit, asker: Asker, now: float) -> auditors.Turn:
    """Returns the operator's turn at the panel.

    An operator that left a seat of the job waits one lease before it gets another, and twice as long after each further
    one: others come first, and nobody holds up panel after panel.
    """
    seats = panel_rows.list_seats(reader, audit.task_id, audit.runs)
    left, last = panel_rows.count_left_seats(reader, audit.job_id, asker.operator)
    if left and asker.operator not in {seat.operator for seat in seats if seat.state != PanelSeatState.LEFT}:
        lease_s = reader.get_one(Task, audit.task_id).offer.lease_seconds
        if last + lease_s * 2 ** min(left - 1, MOST_DOUBLED) > now:
            return "wait"
    members = [seat.member for seat in seats]
    return auditors.choose_turn(members, _panel_of(reader, audit), asker.operator, asker.auditor)


def record_seal(context: Context, task_id: str, operator: str, seal: PanelSeal) -> None:
    """Stores a sealed answer; once the panel is complete, its members must open theirs.

    Repeating it changes nothing. Raises Conflict where the operator has no seat that waits for it, or another operator
    signs with the same key; Refused where the signer did not sign it.
    """
    with context.begin() as work:
        task, audit, seat = _lock_seat(work, task_id, operator, seal)
        if not auditors.is_seal_signed(context.domain, task.offer_digest, seal):
            raise Refused(f"{seal.signer} did not sign this sealed answer")
        if seat.state != PanelSeatState.TAKEN:
            if (seat.signer, seat.sealed) != (seal.signer, seal.sealed):
                raise Conflict(f"this operator's answer is {seat.state}: it was sealed otherwise, or too late")
            return
        if panel_rows.is_signer_taken(work, seat, seal.signer):
            raise Conflict(f"{seal.signer} signs for another operator of this job: take a key of your own")
        seat.state, seat.signer, seat.sealed, seat.signature = (
            PanelSeatState.SEALED,
            seal.signer,
            seal.sealed,
            seal.signature,
        )
        seat.claimed_until = None
        work.flush()
        _go_on(work, task, audit, context.clock())


def record_opening(context: Context, task_id: str, operator: str, opening: PanelOpening) -> None:
    """Takes the opening of a sealed answer; the audit is decided once enough auditors have opened the same root.

    Repeating it changes nothing. Raises Conflict before all of the panel have sealed theirs; Refused where it does not
    open this operator's seal.
    """
    with context.begin() as work:
        task, audit, seat = _lock_seat(work, task_id, operator, opening)
        if seat.state == PanelSeatState.SEALED and seat.claimed_until is None:
            raise Conflict("not all auditors of the panel have sealed their answers yet: ask again")
        if (
            seat.signer is None
            or seat.sealed is None
            or not auditors.is_seal_opened(task.offer_digest, seat.signer, seat.sealed, opening)
        ):
            raise Refused("salt and root do not open this operator's seal")
        if seat.state == PanelSeatState.SEALED:
            seat.state, seat.root, seat.salt, seat.seconds = (
                PanelSeatState.OPENED,
                opening.root,
                opening.salt,
                opening.seconds,
            )
            seat.claimed_until = None
            work.flush()
            _go_on(work, task, audit, context.clock())


def _lock_seat(
    work: Work, task_id: str, operator: str, statement: PanelSeal | PanelOpening
) -> tuple[Task, Audit, PanelSeat]:
    if work.get(Audit, task_id) is None:
        raise NotFound(f"no audit of task {task_id[:80]}")
    task, audit = lock_row(work, Task, task_id), lock_row(work, Audit, task_id)
    seat = work.get(PanelSeat, (task_id, statement.run, operator))
    if seat is None or seat.auditor != statement.auditor:
        raise Conflict(f"run {statement.run} of the audit has no seat of this auditor: claim one")
    work.refresh(seat)
    return task, audit, seat


def end_overdue_seats(work: Work, task: Task, audit: Audit, now: float) -> None:
    """Ends seats whose time has passed: an unsealed seat is left, and an unopened one bars its auditor."""
    for seat in panel_rows.list_seats(work, task.id, audit.runs):
        if seat.claimed_until is None or seat.claimed_until >= now:
            continue
        if seat.state == PanelSeatState.TAKEN:
            seat.state = PanelSeatState.LEFT
        elif seat.state == PanelSeatState.SEALED:
            seat.claimed_until = None
            bar_auditor(work, seat, PanelSeatState.WITHHELD, WITHHELD, now)
    work.flush()
    _go_on(work, task, audit, now)


def bar_auditor(work: Work, seat: PanelSeat, state: PanelSeatState, why: str, now: float) -> None:
    """Names no task: nobody may see that it is audited now."""
    seat.state = state
    record_event(work, seat.job_id, "auditor_barred", now, auditor=seat.signer, reason=why)


def _go_on(work: Work, task: Task, audit: Audit, now: float) -> None:
    """Has a complete panel open its seals, or ends the audit as its panel decides; it lapses where nobody is left."""
    if audit.state != AuditState.DUE:
        return
    seats, refereed = panel_rows.list_seats(work, task.id, audit.runs), jobs.spec_of(work, task).refereed
    members = [seat.member for seat in seats]
    decided = auditors.find_decided_root(members, _panel_of(work, audit).agree)
    if refereed and decided is None and auditors.is_disputed(members):
        for seat in seats:
            seat.state = PanelSeatState.HEARD if seat.state == PanelSeatState.OPENED else seat.state
        work.flush()
        for feature in features_of(work):
            feature.hear_task(work, task, now, audit.runs)
    else:
        _count_answers(work, task, audit, seats, now)


def go_on_heard(work: Work, task: Task, audit: Audit, standing: Digest | None, now: float) -> None:
    """Ends the audit with the answer that stands alone before a referee; else its panel's answers are counted."""
    seats = panel_rows.list_seats(work, task.id, audit.runs)
    if standing is not None:
        _decide(work, audit, seats, standing, now)
    else:
        _count_answers(work, task, audit, seats, now)


def _count_answers(work: Work, task: Task, audit: Audit, seats: Sequence[PanelSeat], now: float) -> None:
    panel, members = _panel_of(work, audit), [seat.member for seat in seats]
    decided = auditors.find_decided_root(members, panel.agree)
    if decided is not None:
        _decide(work, audit, seats, decided, now)
    elif auditors.is_at_end(members, panel):
        audit.claims, audit.claimed_until = auditors.count_taken(members), None
        work.notify("audit")
    elif auditors.is_complete(members, panel):
        for seat in seats:
            if seat.state == PanelSeatState.SEALED and seat.claimed_until is None:
                seat.claimed_at, seat.claimed_until = now, now + task.offer.lease_seconds
        work.flush()


def _decide(work: Work, audit: Audit, seats: Sequence[PanelSeat], decided: Digest, now: float) -> None:
    """Answers the audit as one auditor would, and bars operators that opened another answer from the job's audits."""
    wrong = {member.operator for member in auditors.list_wrong((seat.member for seat in seats), decided)}
    right = [seat for seat in seats if seat.state == PanelSeatState.OPENED and seat.operator not in wrong]
    for seat in seats:
        if seat.operator in wrong:
            bar_auditor(work, seat, PanelSeatState.WRONG, WRONG, now)
    audit.root, audit.seconds = decided, max((seat.seconds or 0.0 for seat in right), default=None)
    audit.runs += sum(seat.root is not None for seat in seats)
    work.flush()
    work.set_state_now(audit, AuditState.ANSWERED, claimed_until=None)
    work.notify("audit")


# The stage that ends the seats of auditors whose time has passed, and panels that nobody fills.

TOPIC: Final = "panels"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return [*panel_rows.list_overdue_panels(reader, now), *panel_rows.list_unfilled_panels(reader, now)]


def run(context: Context, task_id: str) -> float | None:
    with context.begin() as work:
        task, audit = lock_row(work, Task, task_id), lock_row(work, Audit, task_id)
        if audit.state == AuditState.DUE:
            now = context.clock()
            end_overdue_seats(work, task, audit, now)
            if task_id in panel_rows.list_unfilled_panels(work, now):
                audit.claims = max(class_checks.ATTEMPTS, audit.claims)  # it lapses as one that auditors left
                work.notify("audit")
    return None
