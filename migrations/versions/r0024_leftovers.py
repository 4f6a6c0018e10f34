"""the age of consents' withdrawals, what each token has uploaded, and what transactions offer for gas"""

import time

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("consents", sa.Column("at", sa.Float(precision=53), server_default="0", nullable=False))
    op.execute(sa.text("UPDATE consents SET at = :now").bindparams(now=time.time()))
    op.create_index("consents_by_age", "consents", ["at"])
    op.create_table(
        "upload_sums",
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("token"),
    )
    op.add_column("transactions", sa.Column("offer", sa.JSON(), server_default="{}", nullable=False))
    op.add_column("transactions", sa.Column("replaced", sa.JSON(), server_default="[]", nullable=False))


def downgrade() -> None:
    op.drop_column("transactions", "replaced")
    op.drop_column("transactions", "offer")
    op.drop_table("upload_sums")
    op.drop_index("consents_by_age", "consents")
    op.drop_column("consents", "at")
