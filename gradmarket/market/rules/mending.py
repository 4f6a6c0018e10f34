"""Which one command makes a paused job go on, or ends it where it cannot."""

from typing import Final

from gradmarket.market.terms import Amount

ESCROW_SHORT: Final = "the escrow does not cover another round"
"""The start of the reason of a job whose deposit is spent."""
AWAITS_TOP_UP: Final = "waits for the deposit of what was added to its budget"
DIVERGED: Final = "a gradient diverged"
"""The start of the reason of a job that a divergence paused."""
UNMEASURED: Final = "cannot be evaluated"
"""Part of the reason of a job whose held-out rows gave no figure."""


def choose_mending_command(job_id: str, reason: str, faulty: bool, audited_now: bool, missing: Amount) -> str:
    """Returns the command for a job that paused for `reason`.

    `faulty`: its document or data are at fault. `audited_now`: an audit may still find that a divergence is a lie.
    `missing` is what the rest of the job costs at most beyond its deposit, in the token's smallest unit. What diverges
    or cannot be computed does so again from the same parameters: such a job is cancelled, and what is left comes back.
    """
    if reason.startswith(ESCROW_SHORT):
        return f"gradmarket job fund {job_id} {missing}"
    if reason.startswith(DIVERGED) and audited_now:
        return "gradmarket auditor run"
    if faulty or reason.startswith(DIVERGED) or UNMEASURED in reason:
        return f"gradmarket job cancel {job_id}"
    return f"gradmarket job resume {job_id}"
