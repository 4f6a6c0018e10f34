"""webhooks end with the token that made them, and their pending messages with them"""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
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
    with op.batch_alter_table("webhook_deliveries") as batch:
        batch.drop_constraint("deliveries_of_webhook", type_="foreignkey")
    with op.batch_alter_table("webhooks") as batch:
        batch.drop_index("ix_webhooks_token_hash")
        batch.drop_constraint("webhooks_of_token", type_="foreignkey")
        batch.drop_column("token_hash")
