"""The release after 0.1.0: planted answers, round claims, panels of auditors, hearings, admission of newcomers.

Jobs know which one they continue, workers their memory, accounts their waiting pay. A webhook ends with its token.
"""

import sqlalchemy as sa
from alembic import op

revision = "0053"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("continues", sa.String(), nullable=True))
    op.add_column("scores", sa.Column("newcomers", sa.JSON(), nullable=True))
    op.add_column("reputations", sa.Column("payers", sa.JSON(), nullable=True))
    op.add_column("workers", sa.Column("memory", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("accounts", sa.Column("waiting", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("earned", sa.Column("waits", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("tasks", sa.Column("norm", sa.Float(), nullable=True))
    op.create_index("accounts_of_worker", "accounts", ["worker"])
    op.create_index("accusations_of_job", "accusations", ["job_id"])
    op.create_index("audits_of_round", "audits", ["job_id", "round"])
    _tie_webhooks_to_tokens()
    op.create_table(
        "planted_answers",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("determinism_class", sa.String(), nullable=False),
        sa.Column("root", sa.String(), nullable=True),
        sa.Column("auditor", sa.String(), nullable=False),
        sa.Column("claims", sa.BigInteger(), nullable=False),
        sa.Column("claimed_until", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_table(
        "round_claims",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("auditor", sa.String(), nullable=True),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id", "round", "number"),
    )
    op.create_table(
        "panel_seats",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("operator", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("auditor", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("signer", sa.String(), nullable=True),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.Column("salt", sa.LargeBinary(), nullable=True),
        sa.Column("root", sa.String(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("claimed_at", sa.Float(), nullable=True),
        sa.Column("claimed_until", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id", "run", "operator"),
    )
    op.create_index("panel_seats_of_job", "panel_seats", ["job_id", "operator"])
    op.create_index("panel_seats_claimed", "panel_seats", ["claimed_until"])
    op.create_table(
        "disputed_tasks",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("over", sa.Boolean(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_index("disputed_tasks_under_way", "disputed_tasks", ["over", "at"])
    op.create_table(
        "hearings",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("one", sa.String(), nullable=False),
        sa.Column("other", sa.String(), nullable=False),
        sa.Column("one_root", sa.String(), nullable=False),
        sa.Column("other_root", sa.String(), nullable=False),
        sa.Column("answer_s", sa.BigInteger(), nullable=False),
        sa.Column("most_values", sa.BigInteger(), nullable=False),
        sa.Column("across", sa.Boolean(), nullable=False),
        sa.Column("questions", sa.JSON(), nullable=False),
        sa.Column("most_bytes", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.Float(), nullable=True),
        sa.Column("ruling", sa.JSON(), nullable=True),
        sa.Column("run", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id", "number"),
    )
    op.create_index("hearings_due", "hearings", ["due_at"])
    op.create_index("hearings_of_one", "hearings", ["one", "due_at"])
    op.create_index("hearings_of_other", "hearings", ["other", "due_at"])
    op.create_table(
        "hearing_values",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("question", sa.BigInteger(), nullable=False),
        sa.Column("side", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id", "number", "question", "side"),
    )


def _tie_webhooks_to_tokens() -> None:
    """Gives each webhook the token that made it; drops those of tokens that are gone, and their pending messages."""
    op.add_column("webhooks", sa.Column("token_hash", sa.LargeBinary(), nullable=True))
    op.execute(
        "UPDATE webhooks SET token_hash = (SELECT tokens.hash FROM tokens WHERE tokens.subject = webhooks.token"
        " AND tokens.role = webhooks.role AND tokens.created_at <= webhooks.created_at"
        " ORDER BY tokens.created_at DESC LIMIT 1)"
    )
    op.execute("DELETE FROM webhooks WHERE token_hash IS NULL")
    op.execute("DELETE FROM webhook_deliveries WHERE webhook_id NOT IN (SELECT id FROM webhooks)")
    with op.batch_alter_table("webhooks") as batch:
        batch.alter_column("token_hash", existing_type=sa.LargeBinary(), nullable=False)
        batch.create_foreign_key("webhooks_of_token", "tokens", ["token_hash"], ["hash"], ondelete="CASCADE")
        batch.create_index("ix_webhooks_token_hash", ["token_hash"])
    with op.batch_alter_table("webhook_deliveries") as batch:
        batch.create_foreign_key("deliveries_of_webhook", "webhooks", ["webhook_id"], ["id"], ondelete="CASCADE")


def downgrade() -> None:
    for table in ("planted_answers", "round_claims", "panel_seats", "disputed_tasks", "hearing_values", "hearings"):
        op.drop_table(table)
    with op.batch_alter_table("webhook_deliveries") as batch:
        batch.drop_constraint("deliveries_of_webhook", type_="foreignkey")
    with op.batch_alter_table("webhooks") as batch:
        batch.drop_index("ix_webhooks_token_hash")
        batch.drop_constraint("webhooks_of_token", type_="foreignkey")
        batch.drop_column("token_hash")
    op.drop_index("audits_of_round", "audits")
    op.drop_index("accusations_of_job", "accusations")
    op.drop_column("tasks", "norm")
    op.drop_index("accounts_of_worker", "accounts")
    op.drop_column("earned", "waits")
    op.drop_column("accounts", "waiting")
    op.drop_column("workers", "memory")
    op.drop_column("reputations", "payers")
    op.drop_column("scores", "newcomers")
    op.drop_column("jobs", "continues")
