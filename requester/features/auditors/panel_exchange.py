"""Seats auditors in panels, and takes their sealed and opened answers (market.rules.audit_panels)."""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import ColumnElement

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.rules import audit_panels, classes
from gradmarket.market.rules.audit_panels import AuditPanel
from gradmarket.market.terms import AuditState, Digest, PanelSeatState
from gradmarket.market.wire.panel_messages import PanelOpening, PanelSeal
from requester.context import Context
from requester.features.auditors import panel_rows
from requester.features.auditors.panel_rows import PanelSeat
from requester.moves.audit_kind import Asker, AuditKind, OtherWork
from requester.store import jobs
from requester.store.event_log import record_event
from requester.store.locks import lock_row
from requester.store.tables import Audit, Task
from requester.store.work import RowReader, Work

WRONG: Final = "it opened another answer than the panel's"
WITHHELD: Final = "it sealed an answer, and did not open it in time"


class PanelAudits(AuditKind):
    """Audits that several auditors of separate operators decide: none is given to one alone."""

    def build_awaited(self, now: float) -> Mapping[str, ColumnElement[bool]]:
        return {"a panel of auditors of separate operators (gradmarket auditor run)": panel_rows.is_panels()}

    def find_other_work(self, work: Work, asker: Asker, now: float) -> OtherWork | None:
        for audit in panel_rows.list_due_panels(work, asker.determinism_class, asker.operator):
            if _find_turn(work, audit, asker) == "wait":
                continue
            task, audit = lock_row(work, Task, audit.task_id), lock_row(work, Audit, audit.task_id)
            turn = _find_turn(work, audit, asker) if audit.state == AuditState.DUE else "wait"
            if turn == "join":
                _take_seat(work, task, audit, asker, now)
            if turn != "wait":
                return OtherWork(task.id, audit.runs, {"panel": "open" if turn == "open" else "seal"})
        return None

    def renew_claim(self, work: Work, task_id: str, asker: Asker, now: float) -> None:
        audit, task = work.get(Audit, task_id), work.get(Task, task_id)
        seat = None if audit is None else work.get(PanelSeat, (task_id, audit.runs, asker.operator))
        if seat is None or task is None or seat.auditor != asker.auditor or seat.claimed_until is None:
            return
        if (seat.claimed_at or 0.0) > now - classes.HELD_S and seat.claimed_until >= now:
            seat.claimed_until = now + task.offer.lease_seconds


def _panel_of(reader: RowReader, audit: Audit) -> AuditPanel:
    panel = jobs.spec_of(reader, reader.get_one(Task, audit.task_id)).panel
    if panel is None:
        raise NotFound(f"no panel audits task {audit.task_id[:80]}")
    return panel


def _find_turn(reader: RowReader, audit: Audit, asker: Asker) -> audit_panels.Turn:
    members = [seat.member for seat in panel_rows.list_seats(reader, audit.task_id, audit.runs)]
    return audit_panels.choose_turn(members, _panel_of(reader, audit), asker.operator, asker.auditor)


def _take_seat(work: Work, task: Task, audit: Audit, asker: Asker, now: float) -> None:
    """Seats the operator's machine, in the seat that the operator left before where there is one."""
    seats = panel_rows.list_seats(work, task.id, audit.runs)
    seat = next((seat for seat in seats if seat.operator == asker.operator), None)
    if seat is None:
        seat = PanelSeat(
            task_id=task.id, run=audit.runs, operator=asker.operator, job_id=task.job_id, number=len(seats)
        )
        work.add(seat)
    seat.auditor, seat.state = asker.auditor, PanelSeatState.TAKEN
    seat.claimed_at, seat.claimed_until = now, now + task.offer.lease_seconds
    audit.claimed_at = now
    work.flush()


def record_seal(context: Context, task_id: str, operator: str, said: PanelSeal) -> None:
    """Takes a sealed answer; once the panel is complete its members are to open theirs.

    Repeating it changes nothing. Raises Conflict where the operator has no seat that waits for it, or another operator
    signs with the same key; Refused where the signer did not sign it.
    """
    with context.begin() as work:
        task, audit, seat = _lock_seat(work, task_id, operator, said)
        if not audit_panels.is_seal_signed(context.domain, task.offer_digest, said):
            raise Refused(f"{said.signer} did not sign this sealed answer")
        if seat.state != PanelSeatState.TAKEN:
            if (seat.signer, seat.sealed) != (said.signer, said.sealed):
                raise Conflict(f"this operator's answer is {seat.state}: it was sealed otherwise, or too late")
            return
        if panel_rows.is_signer_taken(work, seat, said.signer):
            raise Conflict(f"{said.signer} signs for another operator of this job: take a key of your own")
        seat.state, seat.signer, seat.sealed, seat.signature = (
            PanelSeatState.SEALED,
            said.signer,
            said.sealed,
            said.signature,
        )
        seat.claimed_until = None
        work.flush()
        _go_on(work, task, audit, context.clock())


def record_opening(context: Context, task_id: str, operator: str, said: PanelOpening) -> None:
    """Takes what opens a sealed answer; the audit is decided once enough have opened the same.

    Repeating it changes nothing. Raises Conflict before all have sealed theirs; Refused where it opens another seal.
    """
    with context.begin() as work:
        task, audit, seat = _lock_seat(work, task_id, operator, said)
        if seat.state == PanelSeatState.SEALED and seat.claimed_until is None:
            raise Conflict("not all auditors of the panel have sealed their answers yet: ask again")
        if not _is_opened(task, seat, said):
            raise Refused("salt and root do not open this operator's seal")
        if seat.state == PanelSeatState.SEALED:
            seat.state, seat.root, seat.salt, seat.seconds = (
                PanelSeatState.OPENED,
                said.root,
                said.salt,
                said.seconds,
            )
            seat.claimed_until = None
            work.flush()
            _go_on(work, task, audit, context.clock())


def _is_opened(task: Task, seat: PanelSeat, said: PanelOpening) -> bool:
    if seat.signer is None or seat.sealed is None:
        return False
    return audit_panels.is_seal_opened(task.offer_digest, seat.signer, seat.sealed, said)


def _lock_seat(
    work: Work, task_id: str, operator: str, said: PanelSeal | PanelOpening
) -> tuple[Task, Audit, PanelSeat]:
    if work.get(Audit, task_id) is None:
        raise NotFound(f"no audit of task {task_id[:80]}")
    task, audit = lock_row(work, Task, task_id), lock_row(work, Audit, task_id)
    seat = work.get(PanelSeat, (task_id, said.run, operator))
    if seat is None or seat.auditor != said.auditor:
        raise Conflict(f"run {said.run} of the audit has no seat of this auditor: claim one")
    work.refresh(seat)
    return task, audit, seat


def end_overdue_seats(work: Work, task: Task, audit: Audit, now: float) -> None:
    """Takes the seats of auditors that let their time pass, so that others take their place."""
    for seat in panel_rows.list_seats(work, task.id, audit.runs):
        if seat.claimed_until is None or seat.claimed_until >= now:
            continue
        seat.claimed_until = None
        if seat.state == PanelSeatState.TAKEN:
            seat.state = PanelSeatState.LEFT
        elif seat.state == PanelSeatState.SEALED:
            _bar(work, seat, PanelSeatState.WITHHELD, WITHHELD, now)
    work.flush()
    _go_on(work, task, audit, now)


def _bar(work: Work, seat: PanelSeat, state: PanelSeatState, why: str, now: float) -> None:
    seat.state = state
    record_event(work, seat.job_id, "auditor_barred", now, task=seat.task_id, auditor=seat.signer, reason=why)


def _go_on(work: Work, task: Task, audit: Audit, now: float) -> None:
    """Has a complete panel open its seals, or ends the audit as its panel decides; it lapses where nobody is left."""
    if audit.state != AuditState.DUE:
        return
    panel, seats = _panel_of(work, audit), panel_rows.list_seats(work, task.id, audit.runs)
    members = [seat.member for seat in seats]
    decided = audit_panels.find_decided_root(members, panel.agree)
    if decided is not None:
        _decide(work, audit, seats, decided, now)
    elif audit_panels.is_at_end(members, panel):
        audit.claims, audit.claimed_until = len(seats), None
        work.notify("audit")
    elif audit_panels.is_complete(members, panel):
        for seat in seats:
            if seat.state == PanelSeatState.SEALED and seat.claimed_until is None:
                seat.claimed_at, seat.claimed_until = now, now + task.offer.lease_seconds
        work.flush()


def _decide(work: Work, audit: Audit, seats: Sequence[PanelSeat], decided: Digest, now: float) -> None:
    """The audit is answered as one auditor's would be; whoever opened another answer audits no more in the job."""
    wrong = {member.operator for member in audit_panels.list_wrong((seat.member for seat in seats), decided)}
    right = [seat for seat in seats if seat.state == PanelSeatState.OPENED and seat.operator not in wrong]
    for seat in seats:
        if seat.operator in wrong:
            _bar(work, seat, PanelSeatState.WRONG, WRONG, now)
    audit.root, audit.seconds = decided, max((seat.seconds or 0.0 for seat in right), default=None)
    audit.runs += len(right) + len(wrong)
    work.flush()
    work.set_state_now(audit, AuditState.ANSWERED, claimed_until=None)
    work.notify("audit")
