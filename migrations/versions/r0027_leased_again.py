"""a second lease of one attempt for a worker whose machine failed in the first"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

UNNAMED = "replicas_task_id_worker_key"
"""PostgreSQL's own name of the constraint; SQLite has none."""
ONCE = "UNIQUE (task_id, worker)"
ANSWERED = sa.text("sealed IS NOT NULL")


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_table(f", \n\t{ONCE}", "")
    else:
        op.drop_constraint(UNNAMED, "replicas", type_="unique")
    op.create_index("replicas_of_task", "replicas", ["task_id", "worker"])
    columns = ["task_id", "worker"]
    op.create_index(
        "replicas_answered", "replicas", columns, unique=True, postgresql_where=ANSWERED, sqlite_where=ANSWERED
    )


def downgrade() -> None:
    """Refused by the database where a worker had two leases of one attempt."""
    op.drop_index("replicas_answered", "replicas")
    op.drop_index("replicas_of_task", "replicas")
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_table("\n)", f", \n\t{ONCE}\n)")
    else:
        op.create_unique_constraint(UNNAMED, "replicas", ["task_id", "worker"])


def _rebuild_table(old: str, new: str) -> None:
    """Makes the table anew with `new` in place of the end of its text that is `old`.

    SQLite alters no constraint. Alembic's copy would be dropped with rows that others refer to; here the same rows are
    back before the transaction ends, which is when references are checked.
    """
    connection = op.get_bind()
    named = sa.text("SELECT sql FROM sqlite_master WHERE type = :type AND tbl_name = 'replicas' AND sql IS NOT NULL")
    (table,) = connection.scalars(named, {"type": "table"})
    indexes = connection.scalars(named, {"type": "index"}).all()
    begun, _found, rest = table.rpartition(old)
    op.execute("PRAGMA defer_foreign_keys = ON")
    op.execute("CREATE TABLE replicas_before AS SELECT * FROM replicas")
    op.execute("DELETE FROM replicas")
    op.execute("DROP TABLE replicas")
    op.execute(begun + new + rest)
    op.execute("INSERT INTO replicas SELECT * FROM replicas_before")
    op.execute("DROP TABLE replicas_before")
    for index in indexes:
        op.execute(index)
