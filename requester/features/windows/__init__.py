"""Audits that repeat two windows of a task, from states that its worker brings, by market.rules.task_windows."""

from sqlalchemy import ColumnElement, exists

from requester.features.audits.audit_kind import AuditingFeature
from requester.features.windows import state_routes, window_states
from requester.features.windows.window_draws import STATE, WindowAudits, needs_state
from requester.features.windows.window_states import WindowState
from requester.store.work import Work


class WindowsFeature(AuditingFeature):
    name = "windows"
    needs = ("audits",)
    routers = (state_routes.router,)
    audit_kind = WindowAudits()
    blob_kinds = {STATE: needs_state}

    def bound_times(self, work: Work, now: float) -> int:
        return window_states.bound_times(work, now)

    def hide_blob(self, digest: ColumnElement[str]) -> ColumnElement[bool]:
        return exists().where(WindowState.digest == digest, WindowState.brought.is_(True))
