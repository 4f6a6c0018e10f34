"""jobs know which job they continue, for queries"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("continues", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "continues")
