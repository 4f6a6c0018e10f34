"""who may read a job's parameters; API tokens with names, roles and times"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ROLES = sa.table("tokens", sa.column("role", sa.String))


def upgrade() -> None:
    op.add_column("jobs", sa.Column("visibility", sa.String(), nullable=False, server_default="workers"))
    op.create_index("rounds_by_updated", "rounds", ["updated"], unique=False)
    op.add_column("tokens", sa.Column("created_at", sa.Float(precision=53), nullable=False, server_default="0"))
    op.create_index("tokens_by_subject", "tokens", ["subject"], unique=False)
    op.create_index("tokens_by_end", "tokens", ["until"], unique=False)
    op.execute(sa.update(ROLES).where(ROLES.c.role == "requester").values(role="admin"))


def downgrade() -> None:
    op.execute(sa.update(ROLES).where(ROLES.c.role.in_(("read", "submit", "audit", "admin"))).values(role="requester"))
    op.drop_index("tokens_by_end", table_name="tokens")
    op.drop_index("tokens_by_subject", table_name="tokens")
    op.drop_column("tokens", "created_at")
    op.drop_index("rounds_by_updated", table_name="rounds")
    op.drop_column("jobs", "visibility")
