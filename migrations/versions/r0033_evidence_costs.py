"""what the answers of an operator's evidence were paid and took

Evidence of before is taken to have cost what the jobs cost in which it was gathered, on average over its audits.
"""

from collections import defaultdict

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

GATHERED = sa.text(
    "SELECT r.operator, r.determinism_class, t.job_id, count(*) AS answers FROM replicas r"
    " JOIN audits a ON a.task_id = r.task_id JOIN tasks t ON t.id = r.task_id"
    " WHERE a.state = 'passed' AND a.root = r.root GROUP BY r.operator, r.determinism_class, t.job_id"
)
RECORDS = sa.table("reputations", *map(sa.column, ("operator", "determinism_class", "evidence", "paid", "computed")))
JOBS = sa.table("jobs", sa.column("id"), sa.column("unit"), sa.column("price"), sa.column("facts", sa.JSON))


def upgrade() -> None:
    for name in ("paid", "computed"):
        op.add_column("reputations", sa.Column(name, sa.Float(), nullable=False, server_default="0"))
    connection = op.get_bind()
    costs = {
        row.id: (float(row.price * int(row.unit or 0)), float((row.facts or {}).get("flops") or 0))
        for row in connection.execute(sa.select(JOBS))
    }
    gathered = defaultdict(list)
    for operator, determinism_class, job, answers in connection.execute(GATHERED):
        gathered[operator, determinism_class].append((answers, *costs[job]))
    for (operator, determinism_class), parts in gathered.items():
        total = sum(answers for answers, _paid, _computed in parts)
        paid = sum(answers * each for answers, each, _computed in parts) / total
        computed = sum(answers * each for answers, _paid, each in parts) / total
        theirs = (RECORDS.c.operator == operator, RECORDS.c.determinism_class == determinism_class)
        spent = {"paid": RECORDS.c.evidence * paid, "computed": RECORDS.c.evidence * computed}
        connection.execute(sa.update(RECORDS).where(*theirs).values(spent))


def downgrade() -> None:
    for name in ("paid", "computed"):
        op.drop_column("reputations", name)
