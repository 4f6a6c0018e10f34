"""an index of accusations by their job, whose view reads them"""

from alembic import op

revision = "0050"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("accusations_of_job", "accusations", ["job_id"])


def downgrade() -> None:
    op.drop_index("accusations_of_job", "accusations")
