"""Tasks have the norm of their accepted answer, by which answers that are far too long are audited."""

import sqlalchemy as sa
from alembic import op

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tasks", sa.Column("norm", sa.Float(), nullable=True))


def downgrade() -> None:
    op.drop_column("tasks", "norm")
