"""workers state the memory that a step may take on their devices"""

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workers", sa.Column("memory", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("workers", "memory")
