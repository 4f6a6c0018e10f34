"""the tables of 0.1.0"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audited_classes",
        sa.Column("determinism_class", sa.String(), nullable=False),
        sa.Column("asked_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("determinism_class"),
    )
    op.create_table(
        "calibrations",
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("one", sa.String(), nullable=False),
        sa.Column("other", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("largest", sa.JSON(), nullable=False),
        sa.Column("changed_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("family", "one", "other"),
    )
    op.create_table(
        "consents",
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("payout", sa.String(), nullable=False),
        sa.Column("withdrawn", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Float(precision=53), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("worker", "payout"),
    )
    op.create_index("consents_by_age", "consents", ["at"], unique=False)
    op.create_table(
        "duties",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "idempotency",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("location", sa.String(), nullable=True),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("subject", "key"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("visibility", sa.String(), server_default="workers", nullable=False),
        sa.Column("swept", sa.Boolean(), server_default="1", nullable=False),
        sa.Column("publication", sa.JSON(), nullable=True),
        sa.Column("spec_digest", sa.String(), nullable=True),
        sa.Column("facts", sa.JSON(), nullable=True),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("chain_job", sa.BigInteger(), nullable=True),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("price", sa.BigInteger(), nullable=False),
        sa.Column("budget", sa.BigInteger(), nullable=False),
        sa.Column("deposited", sa.BigInteger(), nullable=False),
        sa.Column("refunded", sa.BigInteger(), nullable=False),
        sa.Column("expiry", sa.BigInteger(), nullable=True),
        sa.Column("claim_until", sa.BigInteger(), nullable=True),
        sa.Column("determinism_class", sa.String(), nullable=True),
        sa.Column("proven_class", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("protocol", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("compute_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("fault", sa.JSON(), nullable=True),
        sa.Column("tags", sa.String(), server_default="", nullable=False),
        sa.Column("note", sa.String(), server_default="", nullable=False),
        sa.Column("best_round", sa.BigInteger(), nullable=True),
        sa.Column("rewind_to", sa.BigInteger(), nullable=True),
        sa.Column("replay_from", sa.BigInteger(), server_default="0", nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("chain_job"),
    )
    op.create_index(op.f("ix_jobs_state"), "jobs", ["state"], unique=False)
    op.create_index("jobs_listed", "jobs", ["created_at", "id"], unique=False)
    op.create_index(
        "jobs_replayed",
        "jobs",
        ["ended_at"],
        unique=False,
        sqlite_where=sa.text("replay_from IS NOT NULL"),
        postgresql_where=sa.text("replay_from IS NOT NULL"),
    )
    op.create_table(
        "nonces",
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("value"),
    )
    op.create_table(
        "reputations",
        sa.Column("operator", sa.String(), nullable=False),
        sa.Column("determinism_class", sa.String(), nullable=False),
        sa.Column("evidence", sa.Float(precision=53), nullable=False),
        sa.Column("paid", sa.Float(precision=53), server_default="0", nullable=False),
        sa.Column("computed", sa.Float(precision=53), server_default="0", nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("passed", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("failed_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("operator", "determinism_class"),
    )
    op.create_table(
        "spending_limits",
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("a_day", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("token"),
    )
    op.create_table(
        "tokens",
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_index("tokens_by_end", "tokens", ["until"], unique=False)
    op.create_index("tokens_by_subject", "tokens", ["subject"], unique=False)
    op.create_table(
        "troubles",
        sa.Column("part", sa.String(), nullable=False),
        sa.Column("said", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("part"),
    )
    op.create_table(
        "unserved_blobs",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("digest", "token"),
    )
    op.create_table(
        "upload_sums",
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("token"),
    )
    op.create_table(
        "uploaded_blobs",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("webhook_id", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.Float(precision=53), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index(op.f("ix_webhook_deliveries_webhook_id"), "webhook_deliveries", ["webhook_id"], unique=False)
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("happenings", sa.JSON(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("delivered_at", sa.Float(precision=53), nullable=True),
        sa.Column("trouble", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "workers",
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("payout", sa.String(), nullable=False),
        sa.Column("operator", sa.String(), nullable=False),
        sa.Column("network", sa.String(), nullable=True),
        sa.Column("determinism_class", sa.String(), nullable=False),
        sa.Column("capacity", sa.BigInteger(), nullable=False),
        sa.Column("asking_until", sa.Float(precision=53), nullable=False),
        sa.Column("jobs", sa.JSON(), nullable=False),
        sa.Column("least_price", sa.BigInteger(), nullable=False),
        sa.Column("least_prices", sa.JSON(), nullable=False),
        sa.Column("seen_at", sa.Float(precision=53), nullable=False),
        sa.Column("joined_at", sa.Float(precision=53), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("accepted_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("address"),
    )
    op.create_index("workers_asking", "workers", ["asking_until"], unique=False)
    op.create_index("workers_seen", "workers", ["seen_at"], unique=False)
    op.create_table(
        "accounts",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("earned", sa.BigInteger(), nullable=False),
        sa.Column("voucher_signature", sa.LargeBinary(), nullable=True),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.BigInteger(), nullable=False),
        sa.Column("withdrawn", sa.BigInteger(), nullable=False),
        sa.Column("at_risk", sa.BigInteger(), nullable=False),
        sa.Column("leaving", sa.Boolean(), nullable=False),
        sa.Column("stalls", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("stalled_at", sa.Float(precision=53), nullable=True),
        sa.Column("rests_until", sa.Float(precision=53), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["worker"],
            ["workers.address"],
        ),
        sa.PrimaryKeyConstraint("job_id", "worker"),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("events_of_job", "events", ["job_id", "id"], unique=False)
    op.create_table(
        "holders",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("joined_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["worker"],
            ["workers.address"],
        ),
        sa.PrimaryKeyConstraint("job_id", "worker"),
    )
    op.create_table(
        "job_blobs",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("part", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("digest", "job_id", "part"),
    )
    op.create_index("job_blobs_of_job", "job_blobs", ["job_id"], unique=False)
    op.create_table(
        "leans",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("operator", sa.String(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.LargeBinary(), nullable=False),
        sa.Column("squares", sa.Float(precision=53), nullable=False),
        sa.Column("rounds", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "operator", "round"),
    )
    op.create_table(
        "log_leaves",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("about", sa.String(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "number"),
        sa.UniqueConstraint("job_id", "kind", "about", name="log_leaf_once"),
    )
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
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("merge_parts_by_memory", "merge_parts", ["memory"], unique=False)
    op.create_index("merge_parts_by_result", "merge_parts", ["result"], unique=False)
    op.create_index("merge_parts_of_round", "merge_parts", ["job_id", "round"], unique=False)
    op.create_index(
        "merge_parts_to_do",
        "merge_parts",
        ["id"],
        unique=False,
        sqlite_where=sa.text("result IS NULL"),
        postgresql_where=sa.text("result IS NULL"),
    )
    op.create_table(
        "rounds",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("parameters", sa.String(), nullable=False),
        sa.Column("price", sa.BigInteger(), nullable=False),
        sa.Column("optimizer_state", sa.String(), nullable=False),
        sa.Column("updated", sa.String(), nullable=True),
        sa.Column("published_update", sa.String(), nullable=True),
        sa.Column("loss", sa.Float(precision=53), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=True),
        sa.Column("drift", sa.JSON(), nullable=True),
        sa.Column("opened_at", sa.Float(precision=53), nullable=False),
        sa.Column("closed_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "number"),
    )
    op.create_index("rounds_by_optimizer_state", "rounds", ["optimizer_state"], unique=False)
    op.create_index("rounds_by_parameters", "rounds", ["parameters"], unique=False)
    op.create_index(
        "rounds_by_published_update",
        "rounds",
        ["published_update"],
        unique=False,
        sqlite_where=sa.text("published_update IS NOT NULL"),
        postgresql_where=sa.text("published_update IS NOT NULL"),
    )
    op.create_index("rounds_by_state", "rounds", ["state", "job_id"], unique=False)
    op.create_index("rounds_by_updated", "rounds", ["updated"], unique=False)
    op.create_table(
        "secure_sums",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("start", sa.LargeBinary(), nullable=False),
        sa.Column("beacon", sa.LargeBinary(), nullable=False),
        sa.Column("expected", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.Float(precision=53), nullable=True),
        sa.Column("key_list", sa.LargeBinary(), nullable=True),
        sa.Column("sharers", sa.LargeBinary(), nullable=True),
        sa.Column("survivors", sa.LargeBinary(), nullable=True),
        sa.Column("total", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "round"),
    )
    op.create_table(
        "spendings",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("amount", sa.String(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("spendings_of_token", "spendings", ["token", "at"], unique=False)
    op.create_table(
        "strikes",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("operator", sa.String(), nullable=False),
        sa.Column("weight", sa.Float(precision=53), nullable=False),
        sa.Column("withheld", sa.Float(precision=53), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.Column("withheld_until", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "operator"),
    )
    op.create_index("strikes_of_operator", "strikes", ["operator"], unique=False)
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("index", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("offer", sa.JSON(), nullable=False),
        sa.Column("offer_digest", sa.LargeBinary(), nullable=False),
        sa.Column("offer_signature", sa.LargeBinary(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("wave", sa.BigInteger(), nullable=False),
        sa.Column("wave_size", sa.BigInteger(), nullable=False),
        sa.Column("window_opened", sa.Float(precision=53), nullable=True),
        sa.Column("due_at", sa.Float(precision=53), nullable=True),
        sa.Column("due_most", sa.Float(precision=53), nullable=True),
        sa.Column("determinism_class", sa.String(), nullable=True),
        sa.Column("patience_until", sa.Float(precision=53), nullable=True),
        sa.Column("allowed", sa.JSON(), nullable=True),
        sa.Column("root", sa.String(), nullable=True),
        sa.Column("uploader", sa.String(), nullable=True),
        sa.Column("payload", sa.String(), nullable=True),
        sa.Column("payload_bytes", sa.BigInteger(), nullable=True),
        sa.Column("merge_round", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("used", sa.Boolean(), nullable=False),
        sa.Column("backups", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("failures", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "round", "index", "attempt"),
        sa.UniqueConstraint("offer_digest"),
    )
    op.create_index(op.f("ix_tasks_payload"), "tasks", ["payload"], unique=False)
    op.create_index("tasks_by_root", "tasks", ["job_id", "root"], unique=False)
    op.create_index("tasks_by_state", "tasks", ["state", "due_at"], unique=False)
    op.create_index("tasks_in_vain", "tasks", ["state", "patience_until"], unique=False)
    op.create_index("tasks_of_job", "tasks", ["job_id", "state", "wave", "round", "index"], unique=False)
    op.create_table(
        "transactions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("sender", sa.String(), nullable=False),
        sa.Column("nonce", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("to", sa.String(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=True),
        sa.Column("hash", sa.String(), nullable=True),
        sa.Column("offer", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("replaced", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("block", sa.BigInteger(), nullable=True),
        sa.Column("gas", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("sent_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sender", "nonce"),
    )
    op.create_index("transactions_by_state", "transactions", ["state"], unique=False)
    op.create_table(
        "unneeded_blobs",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("digest", "job_id", "kind"),
    )
    op.create_index("unneeded_blobs_of_job", "unneeded_blobs", ["job_id"], unique=False)
    op.create_table(
        "accusations",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("event", sa.LargeBinary(), nullable=False),
        sa.Column("case", sa.LargeBinary(), nullable=False),
        sa.Column("amount", sa.String(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["tasks.id"],
        ),
        sa.ForeignKeyConstraint(
            ["worker"],
            ["workers.address"],
        ),
        sa.PrimaryKeyConstraint("task_id", "worker"),
    )
    op.create_index("accusations_by_state", "accusations", ["state", "created_at"], unique=False)
    op.create_table(
        "audits",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("rate", sa.Float(precision=53), nullable=False),
        sa.Column("determinism_class", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("scored", sa.Boolean(), nullable=False),
        sa.Column("root", sa.String(), nullable=True),
        sa.Column("sketch", sa.LargeBinary(), nullable=True),
        sa.Column("window", sa.BigInteger(), nullable=True),
        sa.Column("leaves", sa.LargeBinary(), nullable=True),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("auditor", sa.String(), nullable=False),
        sa.Column("claims", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("claimed_at", sa.Float(precision=53), nullable=True),
        sa.Column("claimed_until", sa.Float(precision=53), nullable=True),
        sa.Column("seconds", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["tasks.id"],
        ),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_index("audits_by_state", "audits", ["state", "created_at"], unique=False)
    op.create_index("audits_claimed", "audits", ["claimed_at"], unique=False)
    op.create_index("audits_of_job", "audits", ["job_id", "state"], unique=False)
    op.create_table(
        "batches",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("gradients", sa.BigInteger(), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("transaction_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("log_size", sa.BigInteger(), nullable=True),
        sa.Column("log_root", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("settled_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["transaction_id"],
            ["transactions.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "number"),
    )
    op.create_index("batches_by_state", "batches", ["state"], unique=False)
    op.create_table(
        "replicas",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("payout", sa.String(), nullable=False),
        sa.Column("operator", sa.String(), nullable=False),
        sa.Column("network", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("wave", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("leased_at", sa.Float(precision=53), nullable=False),
        sa.Column("lease_until", sa.Float(precision=53), nullable=False),
        sa.Column("expected_at", sa.Float(precision=53), nullable=True),
        sa.Column("determinism_class", sa.String(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.Column("committed_at", sa.Float(precision=53), nullable=True),
        sa.Column("salt", sa.LargeBinary(), nullable=True),
        sa.Column("root", sa.String(), nullable=True),
        sa.Column("sketch", sa.LargeBinary(), nullable=True),
        sa.Column("sketch_signature", sa.LargeBinary(), nullable=True),
        sa.Column("compute_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("outcome", sa.BigInteger(), nullable=True),
        sa.Column("verdict_root", sa.String(), nullable=True),
        sa.Column("verdict_signature", sa.LargeBinary(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("fault", sa.JSON(), nullable=True),
        sa.Column("heard", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["tasks.id"],
        ),
        sa.ForeignKeyConstraint(
            ["worker"],
            ["workers.address"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "replicas_answered",
        "replicas",
        ["task_id", "worker"],
        unique=True,
        postgresql_where=sa.text("sealed IS NOT NULL"),
        sqlite_where=sa.text("sealed IS NOT NULL"),
    )
    op.create_index("replicas_by_state", "replicas", ["state", "lease_until"], unique=False)
    op.create_index("replicas_in_job_of_worker", "replicas", ["job_id", "worker", "state"], unique=False)
    op.create_index("replicas_listed", "replicas", ["job_id", "id"], unique=False)
    op.create_index("replicas_of_job", "replicas", ["job_id", "state"], unique=False)
    op.create_index("replicas_of_task", "replicas", ["task_id", "worker"], unique=False)
    op.create_index("replicas_of_worker", "replicas", ["worker", "heard"], unique=False)
    op.create_index(
        "replicas_unheard",
        "replicas",
        ["worker"],
        unique=False,
        postgresql_where=sa.text("heard IS false"),
        sqlite_where=sa.text("heard IS 0"),
    )
    op.create_table(
        "scores",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("operator", sa.String(), nullable=False),
        sa.Column("own", sa.Float(precision=53), nullable=False),
        sa.Column("others", sa.JSON(), nullable=False),
        sa.Column("trusted_own", sa.Float(precision=53), nullable=False),
        sa.Column("trusted_others", sa.JSON(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=True),
        sa.Column("honest", sa.Float(precision=53), nullable=True),
        sa.Column("total", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["tasks.id"],
        ),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_index("scores_of_job", "scores", ["job_id", "number"], unique=False)
    op.create_index("scores_of_operator", "scores", ["job_id", "operator", "number"], unique=False)
    op.create_table(
        "secure_messages",
        sa.Column("sum_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.BigInteger(), nullable=False),
        sa.Column("said", sa.LargeBinary(), nullable=False),
        sa.Column("vector", sa.String(), nullable=True),
        sa.Column("told", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["sum_id"],
            ["secure_sums.id"],
        ),
        sa.PrimaryKeyConstraint("sum_id", "attempt", "step", "holder"),
    )
    op.create_table(
        "trusted_runs",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("determinism_class", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("root", sa.String(), nullable=True),
        sa.Column("sketch", sa.LargeBinary(), nullable=True),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("auditor", sa.String(), nullable=False),
        sa.Column("claimed_until", sa.Float(precision=53), nullable=True),
        sa.Column("seconds", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["tasks.id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "determinism_class"),
    )
    op.create_index("trusted_runs_alike", "trusted_runs", ["family"], unique=False)
    op.create_index("trusted_runs_of_job", "trusted_runs", ["job_id", "round"], unique=False)
    op.create_index(
        "trusted_runs_sketched",
        "trusted_runs",
        ["created_at"],
        unique=False,
        postgresql_where=sa.text("sketch IS NOT NULL"),
        sqlite_where=sa.text("sketch IS NOT NULL"),
    )
    op.create_table(
        "waves",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("commitments", sa.LargeBinary(), nullable=False),
        sa.Column("seed", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.Column("closed_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["tasks.id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "number"),
    )
    op.create_table(
        "window_states",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("replica", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.Column("brought", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["tasks.id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "number"),
    )
    op.create_index("window_states_by_digest", "window_states", ["digest"], unique=False)
    op.create_index("window_states_of_worker", "window_states", ["worker"], unique=False)
    op.create_table(
        "earned",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("replica_id", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("batch_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("by_worth", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(
            ["batch_id"],
            ["batches.id"],
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["replica_id"],
            ["replicas.id"],
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["tasks.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "task_id", "replica_id", "by_worth", name="earned_once"),
    )
    op.create_index("earned_listed", "earned", ["job_id", "id"], unique=False)
    op.create_index("earned_unsettled", "earned", ["job_id", "batch_id"], unique=False)


def downgrade() -> None:
    op.drop_table("earned")
    op.drop_table("window_states")
    op.drop_table("waves")
    op.drop_table("trusted_runs")
    op.drop_table("secure_messages")
    op.drop_table("scores")
    op.drop_table("replicas")
    op.drop_table("batches")
    op.drop_table("audits")
    op.drop_table("accusations")
    op.drop_table("unneeded_blobs")
    op.drop_table("transactions")
    op.drop_table("tasks")
    op.drop_table("strikes")
    op.drop_table("spendings")
    op.drop_table("secure_sums")
    op.drop_table("rounds")
    op.drop_table("merge_parts")
    op.drop_table("log_leaves")
    op.drop_table("leans")
    op.drop_table("job_blobs")
    op.drop_table("holders")
    op.drop_table("events")
    op.drop_table("accounts")
    op.drop_table("workers")
    op.drop_table("webhooks")
    op.drop_table("webhook_deliveries")
    op.drop_table("uploaded_blobs")
    op.drop_table("upload_sums")
    op.drop_table("unserved_blobs")
    op.drop_table("troubles")
    op.drop_table("tokens")
    op.drop_table("spending_limits")
    op.drop_table("reputations")
    op.drop_table("nonces")
    op.drop_table("jobs")
    op.drop_table("idempotency")
    op.drop_table("duties")
    op.drop_table("consents")
    op.drop_table("calibrations")
    op.drop_table("audited_classes")
