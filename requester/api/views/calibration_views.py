"""Views of how far two classes may deviate, and of the trusted runs behind it."""

from collections.abc import Iterable

from gradmarket.market.rules.calibration import RUNS
from gradmarket.market.terms import Digest, TaskId
from gradmarket.market.views.calibration_views import ComparedView, PairView, TensorView
from requester.api.views.formats import format_time
from requester.store import calibrations
from requester.store.tables import Calibration


def pair_view(row: Calibration, compared: Iterable[tuple[str, str, str]]) -> PairView:
    known = calibrations.build_evidence(row)
    tau = known.tau
    return PairView(
        classes=(row.one, row.other),
        state=row.state,
        reason=known.excess,
        runs=known.runs,
        runs_needed=RUNS,
        confidence=known.confidence,
        tensors=[TensorView(name=name, largest=known.largest[name], threshold=tau[name]) for name in known.largest],
        tasks=[ComparedView(task=TaskId(task), roots=(Digest(one), Digest(other))) for task, one, other in compared],
        changed_at=format_time(row.changed_at),
    )
