"""the protocol that a job was opened under"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("protocol", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    op.drop_column("jobs", "protocol")
