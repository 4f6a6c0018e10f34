"""tags and a note on a job, and its best checkpoint"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("tags", sa.String(), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("note", sa.String(), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("best_round", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for name in ("best_round", "note", "tags"):
        op.drop_column("jobs", name)
