"""The features' rules: a file or folder each. Delete it and its lines here, and it is gone."""

from collections.abc import Callable
from typing import Final

from gradmarket.market.features.disputes import find_dispute_fault
from gradmarket.market.features.private.private_faults import find_private_fault
from gradmarket.market.features.secure_sums.sum_units import find_secure_sum_fault
from gradmarket.market.features.vesting.pay_lock import find_vesting_fault
from gradmarket.market.job_fields import JobFields

SPEC_FAULTS: Final[tuple[Callable[[JobFields], str], ...]] = (
    find_private_fault,
    find_secure_sum_fault,
    find_dispute_fault,
    find_vesting_fault,
)  # fmt: skip
"""Each returns why its feature cannot serve the job, the field first; empty where it can. Imported by market.job."""
