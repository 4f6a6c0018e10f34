"""parts of merges that several processes do"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    to_do = sa.text("result IS NULL")
    op.create_table(
        "merge_parts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Boolean(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("stop", sa.BigInteger(), nullable=False),
        sa.Column("factor", sa.Float(precision=53), nullable=True),
        sa.Column("result", sa.String(), nullable=True),
        sa.Column("memory", sa.String(), nullable=True),
        sa.Column("loss", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("merge_parts_of_round", "merge_parts", ["job_id", "round"], unique=False)
    op.create_index("merge_parts_to_do", "merge_parts", ["id"], sqlite_where=to_do, postgresql_where=to_do)
    op.create_index("merge_parts_by_result", "merge_parts", ["result"], unique=False)
    op.create_index("merge_parts_by_memory", "merge_parts", ["memory"], unique=False)


def downgrade() -> None:
    op.drop_index("merge_parts_by_memory", table_name="merge_parts")
    op.drop_index("merge_parts_by_result", table_name="merge_parts")
    op.drop_index("merge_parts_to_do", table_name="merge_parts")
    op.drop_index("merge_parts_of_round", table_name="merge_parts")
    op.drop_table("merge_parts")
