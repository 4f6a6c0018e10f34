"""pay that waits for a test of its operator, where answers are scored"""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("accounts", sa.Column("waiting", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("earned", sa.Column("waits", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    op.drop_column("earned", "waits")
    op.drop_column("accounts", "waiting")
