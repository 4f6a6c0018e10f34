"""workers say how much memory a step may take on their devices"""

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("workers") as workers:
        workers.add_column(sa.Column("memory", sa.BigInteger(), nullable=False, server_default="0"))
    with op.batch_alter_table("workers") as workers:
        workers.alter_column("memory", server_default=None)


def downgrade() -> None:
    op.drop_column("workers", "memory")
