"""What is still to be sent, in bills: a row for many messages. And two indexes less for every task."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_EAGER_VACUUM = {"autovacuum_vacuum_scale_factor": 0.01, "autovacuum_analyze_scale_factor": 0.01}


def upgrade() -> None:
    for name in ("tasks_by_time", "tasks_by_action"):  # listings merge ranges of those by standing
        op.drop_index(name, "tasks")
    old = op.get_bind().execute(sa.text("SELECT key, taken_until_ms, publication FROM owed")).fetchall()
    op.drop_index("owed_taken", "owed")
    op.drop_table("owed")
    owed = op.create_table(
        "owed",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("taken_until_ms", sa.BigInteger, nullable=False),
        sa.Column("keys", sa.LargeBinary, nullable=False),
        sa.Column("publications", sa.LargeBinary, nullable=False),
        postgresql_with=_EAGER_VACUUM,
    )
    op.create_index("owed_taken", "owed", ["taken_until_ms", "number"])
    if old:
        op.bulk_insert(owed, [_bill(number, *row) for number, row in enumerate(old, start=1)])


def _bill(number: int, key: str, taken_until_ms: int, publication: bytes) -> dict[str, object]:
    """Of the one message."""
    return {
        "number": number,
        "taken_until_ms": taken_until_ms,
        "keys": msgspec.msgpack.encode([key]),
        "publications": b"\x91" + publication,  # a list of one
    }
