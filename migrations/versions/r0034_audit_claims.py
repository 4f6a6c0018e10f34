"""how often auditors took an audit, and when one last did: attempts are bounded, and jobs have turns"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("audits", sa.Column("claims", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("audits", sa.Column("claimed_at", sa.Float(), nullable=True))
    op.create_index("audits_claimed", "audits", ["claimed_at"])


def downgrade() -> None:
    op.drop_index("audits_claimed", "audits")
    op.drop_column("audits", "claimed_at")
    op.drop_column("audits", "claims")
