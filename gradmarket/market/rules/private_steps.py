"""Steps that only a holder of rows takes: noised by row, or corrected by control variates."""

from gradmarket.market.job_fields import JobFields
from gradmarket.market.job_parts import PrivateData
from gradmarket.market.rules import control_variates, row_privacy


def fault(spec: JobFields) -> str:
    """Returns why the job's tasks cannot be such steps, the field first; empty where they can, or are none."""
    step, least = spec.step, spec.data.least_rows if isinstance(spec.data, PrivateData) else None
    return row_privacy.fault(step.per_row, step.rows, step.moves, least) or control_variates.fault(spec)
