"""operators are proven by their payout keys; a bar is its wallet's too

Until here a worker's operator was whatever payout address it named. What such a claim brought is taken from the address
and given to the wallet that made it:

- every worker, replica and score is its own wallet's, until a consent is brought;
- a bar stays on the address only where its own wallet lied, and comes to each wallet that did;
- what else is kept under an address stays there: whoever brings a consent of its key has it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_LIARS = """
SELECT r.worker, a.determinism_class, COUNT(*) AS failed, MAX(a.ended_at) AS failed_at
FROM audits a JOIN replicas r ON r.task_id = a.task_id
WHERE a.state = 'failed' AND r.state IN ('payable', 'diverged')
  AND EXISTS (SELECT 1 FROM reputations k WHERE k.operator = r.operator AND k.failed_at >= a.ended_at)
  AND (a.root IS NULL OR r.root IS NULL OR r.root <> a.root OR a.scored)
GROUP BY r.worker, a.determinism_class
"""
_OWN = (
    "UPDATE scores SET operator = COALESCE((SELECT r.worker FROM tasks t JOIN replicas r ON r.id = t.uploader"
    " WHERE t.id = scores.task_id), operator)",
    "UPDATE replicas SET operator = worker WHERE operator <> worker",
    "UPDATE workers SET operator = address WHERE operator <> address",
)


def upgrade() -> None:
    op.create_table(
        "consents",
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("payout", sa.String(), nullable=False),
        sa.Column("withdrawn", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["worker"], ["workers.address"]),
        sa.PrimaryKeyConstraint("worker", "payout"),
    )
    connection = op.get_bind()
    liars = connection.execute(sa.text(_LIARS)).all()
    _bars_of_claims_end(connection, {row.worker for row in liars})
    for row in liars:
        _bar(connection, row)
    for statement in _OWN:
        op.execute(statement)


def _bars_of_claims_end(connection: sa.Connection, liars: set[str]) -> None:
    """On addresses whose own wallet did not lie."""
    barred = connection.execute(sa.text("SELECT DISTINCT operator FROM reputations WHERE failed_at IS NOT NULL"))
    lifted = sa.text("UPDATE reputations SET failed_at = NULL WHERE operator = :operator")
    for operator in {row.operator for row in barred} - liars:
        connection.execute(lifted, {"operator": operator})


def _bar(connection: sa.Connection, row: sa.Row) -> None:  # type: ignore[type-arg]
    """The wallet's own record in the class is a failed one."""
    key = {"operator": row.worker, "name": row.determinism_class, "at": row.failed_at, "failed": row.failed}
    of = " WHERE operator = :operator AND determinism_class = :name"
    kept = connection.execute(sa.text("UPDATE reputations SET evidence = 0, failed_at = :at" + of), key)
    if kept.rowcount == 0:
        made = "INSERT INTO reputations (operator, determinism_class, evidence, at, passed, failed, failed_at)"
        connection.execute(sa.text(made + " VALUES (:operator, :name, 0, :at, 0, :failed, :at)"), key)


def downgrade() -> None:
    """Who named which payout address is known; what was signed for it is not needed then."""
    op.execute("UPDATE replicas SET operator = payout")
    op.execute("UPDATE workers SET operator = payout")
    op.drop_table("consents")
