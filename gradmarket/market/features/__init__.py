"""The features' rules: a file or folder each. Delete it and its lines here, and it is gone."""

from collections.abc import Callable
from typing import Final

from gradmarket.market.features.auditors import find_panel_fault
from gradmarket.market.features.claims import find_claims_fault
from gradmarket.market.features.disputes import find_dispute_fault
from gradmarket.market.features.loss_change import find_score_fault
from gradmarket.market.features.planted import find_planted_fault
from gradmarket.market.features.private import find_private_fault
from gradmarket.market.features.private.holder_budget import build_holder_budget
from gradmarket.market.features.private.row_budget import build_row_spending
from gradmarket.market.features.proven import find_proof_fault
from gradmarket.market.features.secure_sums.sum_units import find_secure_sum_fault
from gradmarket.market.features.tolerance import find_sketch_fault
from gradmarket.market.features.vesting import find_vesting_fault
from gradmarket.market.features.windows import find_windows_fault
from gradmarket.market.job_fields import JobFields
from gradmarket.market.rules.stopping import Budget

SPEC_FAULTS: Final[tuple[Callable[[JobFields], str], ...]] = (
    find_sketch_fault,
    find_score_fault,
    find_windows_fault,
    find_proof_fault,
    find_planted_fault,
    find_panel_fault,
    find_claims_fault,
    find_private_fault,
    find_secure_sum_fault,
    find_dispute_fault,
    find_vesting_fault,
)  # fmt: skip
"""Each returns why its feature cannot serve the job, the field first; empty where it can. Imported by market.job."""
BUDGETS: Final[tuple[Callable[[JobFields], Budget | None], ...]] = (
    build_holder_budget,
    build_row_spending,
)  # fmt: skip
"""Each returns its feature's budget, which ends the job once it is spent; None where the job has none. Imported by
market.job."""
