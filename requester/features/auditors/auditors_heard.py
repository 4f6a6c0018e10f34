"""The auditors of a panel before its job's referee: an auditor whose answer does not stand is barred."""

from collections.abc import Mapping

from gradmarket.market.terms import Address, AuditState, PanelSeatState
from requester.context import Context
from requester.feature import AnswersLeft, HeardAnswer, HearingParty
from requester.features.auditors import panel_exchange, panel_rows
from requester.features.auditors.panel_rows import PanelSeat
from requester.features.audits.audit_tables import Audit
from requester.store.in_hand import TaskInHand
from requester.store.locks import lock_row
from requester.store.tables import Task
from requester.store.work import RowReader, Work


class AuditorsHeard(HearingParty):
    def load_answers(self, reader: RowReader, task: Task, run: int | None) -> Mapping[Address, HeardAnswer]:
        audit = reader.get(Audit, task.id)
        if audit is None or run is None or audit.state != AuditState.DUE:
            return {}
        return {
            seat.signer: HeardAnswer(seat.root, audit.determinism_class)
            for seat in _list_heard_seats(reader, task.id, run)
            if seat.signer is not None and seat.root is not None
        }

    def may_speak(self, reader: RowReader, task_id: str, run: int | None, side: Address, caller: str) -> bool:
        if run is None:
            return False
        return any((seat.signer, seat.operator) == (side, caller) for seat in _list_heard_seats(reader, task_id, run))

    def settle(self, context: Context, work: Work, hand: TaskInHand, run: int | None, left: AnswersLeft) -> None:
        """Ends the audit with the one answer that stands; else asks further auditors, without those that lost."""
        audit, now = lock_row(work, Audit, hand.task.id), context.clock()
        if run is None or audit.state != AuditState.DUE:
            return
        why = panel_exchange.NONE_STANDS if left.root is None else panel_exchange.LOST
        for seat in _list_heard_seats(work, hand.task.id, run):
            if seat.signer in left.sides or seat.root == left.root:
                seat.state = PanelSeatState.OPENED
            else:
                panel_exchange.bar_auditor(work, seat, PanelSeatState.WRONG, why, now)
        work.flush()
        panel_exchange.go_on_heard(work, hand.task, audit, left.root, now)


def _list_heard_seats(reader: RowReader, task_id: str, run: int) -> list[PanelSeat]:
    return [seat for seat in panel_rows.list_seats(reader, task_id, run) if seat.state == PanelSeatState.HEARD]
