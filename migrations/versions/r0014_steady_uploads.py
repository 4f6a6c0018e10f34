"""until when the deadline of an upload that comes steadily may be put off"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tasks", sa.Column("due_most", sa.Float(precision=53), nullable=True))


def downgrade() -> None:
    op.drop_column("tasks", "due_most")
