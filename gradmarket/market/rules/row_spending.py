"""What a job that noises each holder's steps spends of one row, for a holder of the fewest rows that it takes.

Such a holder uses its rows most often, if it takes part in every round. One of more rows spends less. Each worker
counts its own uses, and does not rely on this.
"""

from gradmarket.market.job import JobSpec
from gradmarket.market.rules import row_privacy
from gradmarket.market.rules.row_privacy import RowPrivacy


def slots(spec: JobSpec) -> int:
    """Returns how many steps an epoch of the fewest rows has."""
    least = spec.private.least_rows if spec.private else spec.step.rows
    return max(1, least // spec.step.rows)


def uses_after(spec: JobSpec, rounds: int) -> int:
    """Returns how often a row is used at most in so many rounds."""
    return row_privacy.uses(rounds * spec.step.moves, slots(spec))


def rounds(spec: JobSpec, asked: RowPrivacy) -> int:
    """Returns the most rounds that epsilon allows."""
    return asked.uses * slots(spec) // spec.step.moves


def spent(spec: JobSpec, asked: RowPrivacy, merged: int) -> float:
    """Returns the epsilon that so many rounds spend at most."""
    return asked.after(uses_after(spec, merged))
