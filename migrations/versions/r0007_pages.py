"""pages of what a job has many of are found along an index, however many there are"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INDEXES = (
    ("replicas_listed", "replicas", ["job_id", "id"]),
    ("replicas_in_job_of_worker", "replicas", ["job_id", "worker", "state"]),
    ("earned_listed", "earned", ["job_id", "id"]),
    ("jobs_listed", "jobs", ["created_at", "id"]),
)


def upgrade() -> None:
    for name, table, columns in INDEXES:
        op.create_index(name, table, columns)


def downgrade() -> None:
    for name, table, _ in reversed(INDEXES):
        op.drop_index(name, table_name=table)
