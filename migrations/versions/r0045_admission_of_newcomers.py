"""payers of the evidence of records; the test of all newcomers together, where answers are scored"""

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("scores", sa.Column("newcomers", sa.JSON(), nullable=True))
    op.add_column("reputations", sa.Column("payers", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("reputations", "payers")
    op.drop_column("scores", "newcomers")
