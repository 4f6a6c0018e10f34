"""a payout key's withdrawal is kept before its consent, or the consent's worker, ever came"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _made_anew()


def downgrade() -> None:
    op.execute("DELETE FROM consents WHERE worker NOT IN (SELECT address FROM workers)")
    _made_anew(sa.ForeignKeyConstraint(["worker"], ["workers.address"]))


def _made_anew(*constraints: sa.Constraint) -> None:
    """SQLite cannot take a constraint from a table."""
    op.create_table(
        "consents_made_anew",
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("payout", sa.String(), nullable=False),
        sa.Column("withdrawn", sa.BigInteger(), nullable=False),
        *constraints,
        sa.PrimaryKeyConstraint("worker", "payout"),
    )
    op.execute("INSERT INTO consents_made_anew SELECT worker, payout, withdrawn FROM consents")
    op.drop_table("consents")
    op.rename_table("consents_made_anew", "consents")
