"""who delivered before, who stalled, attempts that failed though all answered, and what the chain suffers from"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workers", sa.Column("accepted_at", sa.Float(precision=53), nullable=True))
    op.add_column("workers", sa.Column("stalls", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("workers", sa.Column("stalled_at", sa.Float(precision=53), nullable=True))
    op.add_column("workers", sa.Column("rests_until", sa.Float(precision=53), nullable=False, server_default="0"))
    op.add_column("tasks", sa.Column("failures", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "troubles",
        sa.Column("part", sa.String(), nullable=False),
        sa.Column("said", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("part"),
    )
    earned = "EXISTS (SELECT 1 FROM accounts WHERE accounts.worker = workers.address AND accounts.earned > 0)"
    op.execute(f"UPDATE workers SET accepted_at = joined_at WHERE {earned}")


def downgrade() -> None:
    op.drop_table("troubles")
    op.drop_column("tasks", "failures")
    for name in ("rests_until", "stalled_at", "stalls", "accepted_at"):
        op.drop_column("workers", name)
