"""an index of accounts by their worker, whose idle polls and earnings read them"""

from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("accounts_of_worker", "accounts", ["worker"])


def downgrade() -> None:
    op.drop_index("accounts_of_worker", "accounts")
