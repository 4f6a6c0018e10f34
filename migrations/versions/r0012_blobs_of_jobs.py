"""which jobs name a blob, in rows that an index finds; blobs that are let go and not dropped yet"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

JOBS = sa.table(
    "jobs", sa.column("id", sa.String), *(sa.column(name, sa.JSON) for name in ("spec", "publication", "facts"))
)
PARTS = {
    "spec": ("document", "parameters"),
    "publication": ("document", "evaluation", "manifest", "parameters"),
    "facts": ("memory",),
}


def upgrade() -> None:
    named = op.create_table(
        "job_blobs",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("part", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("digest", "job_id", "part"),
    )
    op.create_index("job_blobs_of_job", "job_blobs", ["job_id"], unique=False)
    op.create_table(
        "unneeded_blobs",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("digest", "job_id", "kind"),
    )
    op.create_index("unneeded_blobs_of_job", "unneeded_blobs", ["job_id"], unique=False)
    op.create_index("rounds_by_parameters", "rounds", ["parameters"], unique=False)
    connection = op.get_bind()
    rows = [row for job in connection.execute(sa.select(JOBS)) for row in _named(job)]
    if rows:
        connection.execute(sa.insert(named), rows)


def _named(job: Any) -> list[dict[str, str]]:
    said = {"spec": (job.spec or {}).get("model") or {}, "publication": job.publication or {}, "facts": job.facts or {}}
    return [
        {"digest": said[field][part], "job_id": job.id, "part": f"{field}.{part}"}
        for field, parts in PARTS.items()
        for part in parts
        if said[field].get(part)
    ]


def downgrade() -> None:
    op.drop_index("rounds_by_parameters", table_name="rounds")
    op.drop_index("unneeded_blobs_of_job", table_name="unneeded_blobs")
    op.drop_table("unneeded_blobs")
    op.drop_index("job_blobs_of_job", table_name="job_blobs")
    op.drop_table("job_blobs")
