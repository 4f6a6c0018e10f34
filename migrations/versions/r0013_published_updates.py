"""the updates that rounds publish in few bytes"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

PUBLISHED = sa.text("published_update IS NOT NULL")


def upgrade() -> None:
    op.add_column("rounds", sa.Column("published_update", sa.String(), nullable=True))
    op.create_index(
        "rounds_by_published_update",
        "rounds",
        ["published_update"],
        unique=False,
        sqlite_where=PUBLISHED,
        postgresql_where=PUBLISHED,
    )


def downgrade() -> None:
    op.drop_index("rounds_by_published_update", table_name="rounds")
    op.drop_column("rounds", "published_update")
