"""a referee hears auditors of a panel that differ"""

import sqlalchemy as sa
from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("disputed_tasks", sa.Column("run", sa.BigInteger(), nullable=True))
    op.add_column("hearings", sa.Column("run", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("disputed_tasks", "run")
    op.drop_column("hearings", "run")
