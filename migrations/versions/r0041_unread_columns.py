"""columns of planted answers and of claims that nothing read, or that the job's secret gives"""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("planted_answers_of_job", "planted_answers")
    with op.batch_alter_table("planted_answers") as batch:
        for name in ("job_id", "seconds", "created_at"):
            batch.drop_column(name)
    with op.batch_alter_table("round_claims") as batch:
        for name in ("key", "at"):
            batch.drop_column(name)


def downgrade() -> None:
    """The tables' rows are made anew by the next merges and audits: without keys and jobs they are none."""
    op.execute(sa.text("DELETE FROM planted_answers"))
    op.execute(sa.text("DELETE FROM round_claims"))
    with op.batch_alter_table("round_claims") as batch:
        batch.add_column(sa.Column("key", sa.LargeBinary(), nullable=False))
        batch.add_column(sa.Column("at", sa.Float(), nullable=True))
    with op.batch_alter_table("planted_answers") as batch:
        batch.add_column(sa.Column("job_id", sa.String(), nullable=False))
        batch.add_column(sa.Column("seconds", sa.Float(), nullable=True))
        batch.add_column(sa.Column("created_at", sa.Float(), nullable=False))
        batch.create_foreign_key("planted_answers_job_id_fkey", "jobs", ["job_id"], ["id"])
    op.create_index("planted_answers_of_job", "planted_answers", ["job_id"])
