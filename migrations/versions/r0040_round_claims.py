"""auditors from outside prove that they computed a round"""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "round_claims",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("auditor", sa.String(), nullable=True),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.Column("at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id", "round", "number"),
    )


def downgrade() -> None:
    op.drop_table("round_claims")
