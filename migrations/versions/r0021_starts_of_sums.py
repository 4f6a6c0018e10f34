"""what the vectors of a secure aggregation follow from"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_SUMS = sa.table("secure_sums", sa.column("id"), sa.column("job_id"), sa.column("round"), sa.column("start"))
_ROUNDS = sa.table("rounds", sa.column("job_id"), sa.column("number"), sa.column("parameters"))


def upgrade() -> None:
    with op.batch_alter_table("secure_sums") as table:
        table.add_column(sa.Column("start", sa.LargeBinary(), nullable=False, server_default=""))
    for name, start in _known():
        op.execute(_SUMS.update().where(_SUMS.c.id == name).values(start=start))
    with op.batch_alter_table("secure_sums") as table:
        table.alter_column("start", server_default=None)


def _known() -> list[tuple[str, bytes]]:
    """The sums' names and their rounds' parameters."""
    its_round = sa.and_(_ROUNDS.c.job_id == _SUMS.c.job_id, _ROUNDS.c.number == _SUMS.c.round)
    found = sa.select(_SUMS.c.id, _ROUNDS.c.parameters).join(_ROUNDS, its_round)
    return [(name, bytes.fromhex(digest.removeprefix("blake3:"))) for name, digest in op.get_bind().execute(found)]


def downgrade() -> None:
    with op.batch_alter_table("secure_sums") as table:
        table.drop_column("start")
