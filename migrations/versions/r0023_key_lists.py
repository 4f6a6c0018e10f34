"""the list of all holders' keys in a secure sum, which each holder signs with its vector"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("secure_sums", sa.Column("key_list", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("secure_sums", "key_list")
