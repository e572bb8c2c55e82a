"""Routed tasks: their steps, what is still to be sent, plans; and the nodes with their health."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_EAGER_VACUUM = {"autovacuum_vacuum_scale_factor": 0.01, "autovacuum_analyze_scale_factor": 0.01}


def upgrade() -> None:
    _extend_tasks()
    _create_steps()
    op.create_table(
        "owed",
        sa.Column("key", _ID, primary_key=True),
        sa.Column("taken_until_ms", sa.BigInteger, nullable=False),
        sa.Column("publication", sa.LargeBinary, nullable=False),
        postgresql_with=_EAGER_VACUUM,
    )
    op.create_index("owed_taken", "owed", ["taken_until_ms"])
    _create_plans()
    _create_nodes()


def _extend_tasks() -> None:
    # SQLite reads a row from its beginning: behind the blobs, the new column would cost a walk through them. So its
    # table is copied, once.
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    with op.batch_alter_table("tasks", recreate="always" if is_sqlite else "never") as tasks:
        tasks.add_column(sa.Column("plan", _ID), insert_before="reply_to" if is_sqlite else None)
    _create_partial_index("tasks_by_plan", "tasks", ["plan"], "plan IS NOT NULL")


def _create_steps() -> None:
    op.create_table(
        "steps",
        sa.Column("task_id", _ID, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("send", sa.BigInteger, nullable=False),
        sa.Column("retries", sa.BigInteger, nullable=False),
        sa.Column("node_id", _ID),
        sa.Column("ready_ms", sa.BigInteger),
        sa.Column("due_ms", sa.BigInteger),
        sa.Column("limit_ms", sa.BigInteger),
        sa.Column("ended_ms", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.Column("story", sa.LargeBinary, nullable=False),
        sa.Column("output", sa.LargeBinary),
        postgresql_with=_EAGER_VACUUM,
    )
    _create_partial_index("steps_due", "steps", ["due_ms"], "due_ms IS NOT NULL")
    _create_partial_index("steps_sent", "steps", ["node_id"], "state = 'sent'")


def _create_plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("used_ms", sa.BigInteger, nullable=False),
        sa.Column("doc", sa.LargeBinary, nullable=False),
    )
    op.create_index("plans_used", "plans", ["used_ms"])
    op.create_table(
        "plan_names",
        sa.Column("name", _ID, primary_key=True),
        sa.Column("plan", _ID, nullable=False),
        sa.Column("put_ms", sa.BigInteger, nullable=False),
    )


def _create_nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("node_id", _ID, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("seen_ms", sa.BigInteger, nullable=False),
        sa.Column("doc", sa.LargeBinary, nullable=False),
    )
    op.create_index("nodes_by_version", "nodes", ["version"])
    op.create_table(
        "breakers",
        sa.Column("node_id", _ID, primary_key=True),
        sa.Column("action", _ID, primary_key=True),
        sa.Column("failures", sa.BigInteger, nullable=False),
        sa.Column("down_until_ms", sa.BigInteger, nullable=False),
        sa.Column("trial_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "counters",
        sa.Column("name", _ID, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )


def _create_partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
