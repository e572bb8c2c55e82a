"""The first tables: tasks, dead letters, the outbox, leases and limits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_EAGER_VACUUM = {"autovacuum_vacuum_scale_factor": 0.01, "autovacuum_analyze_scale_factor": 0.01}
_SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _create_tasks()
    _create_letters()
    op.create_table(
        "outbox",
        sa.Column("seq", _SEQ, primary_key=True, autoincrement=True),
        sa.Column("task_id", _ID, nullable=False),
        sa.Column("taken_until_ms", sa.BigInteger, nullable=False),
        sa.Column("publication", sa.LargeBinary, nullable=False),
        postgresql_with=_EAGER_VACUUM,
        sqlite_autoincrement=True,
    )
    op.create_table(
        "leases",
        sa.Column("name", _ID, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "limits",
        sa.Column("key", _ID, primary_key=True),
        sa.Column("next_ms", sa.Double, nullable=False),
    )
    op.create_table(
        "slots",
        sa.Column("key", _ID, primary_key=True),
        sa.Column("holder", _ID, primary_key=True),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
    )


def _create_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("action", _ID, nullable=False),
        sa.Column("standing", sa.Text, nullable=False),
        sa.Column("submitted_ms", sa.BigInteger, nullable=False),
        sa.Column("due_ms", sa.BigInteger),
        sa.Column("started_ms", sa.BigInteger),
        sa.Column("ended_ms", sa.BigInteger),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("node_id", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("progress", sa.Double),
        sa.Column("progress_text", sa.Text),
        sa.Column("run", sa.BigInteger, nullable=False),
        sa.Column("reply_to", sa.Text, nullable=False),
        sa.Column("message", sa.LargeBinary),
        sa.Column("result", sa.LargeBinary),
        postgresql_with=_EAGER_VACUUM,
    )
    op.create_index("tasks_by_time", "tasks", ["submitted_ms", "id"])
    op.create_index("tasks_by_action", "tasks", ["action", "submitted_ms", "id"])
    op.create_index("tasks_by_standing", "tasks", ["standing", "submitted_ms", "id"])
    op.create_index("tasks_by_action_and_standing", "tasks", ["action", "standing", "submitted_ms", "id"])
    _create_partial_index("tasks_ended", "tasks", ["ended_ms"], "ended_ms IS NOT NULL")
    _create_partial_index("tasks_payload", "tasks", ["ended_ms"], "ended_ms IS NOT NULL AND message IS NOT NULL")


def _create_letters() -> None:
    op.create_table(
        "letters",
        sa.Column("task_id", _ID, primary_key=True),
        sa.Column("action", _ID, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("traceback", sa.Text, nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("node_id", sa.Text),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("dead_ms", sa.BigInteger, nullable=False),
        sa.Column("redriven_ms", sa.BigInteger),
        sa.Column("message", sa.LargeBinary, nullable=False),
    )
    op.create_index("letters_dead", "letters", ["dead_ms"])
    _create_partial_index("letters_waiting", "letters", ["dead_ms", "task_id"], "redriven_ms IS NULL")
    _create_partial_index("letters_by_action", "letters", ["action", "dead_ms", "task_id"], "redriven_ms IS NULL")


def _create_partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
