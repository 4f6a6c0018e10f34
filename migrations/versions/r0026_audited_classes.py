"""the determinism classes that auditors ask for"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audited_classes",
        sa.Column("determinism_class", sa.String(), nullable=False),
        sa.Column("asked_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("determinism_class"),
    )


def downgrade() -> None:
    op.drop_table("audited_classes")
