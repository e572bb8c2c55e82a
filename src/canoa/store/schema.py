"""The tables of a store, as they are now. How an older store gets there is in `migrations/`; the
last revision there, and `revision.HEAD`, are these tables.

Blobs come last in a row, so that reading what stands before them does not touch the pages they fill.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

_EAGER_VACUUM: Final = {"autovacuum_vacuum_scale_factor": 0.01, "autovacuum_analyze_scale_factor": 0.01}
metadata = sa.MetaData()

# Byte order on both: cursors compare ids, and PostgreSQL's own order would depend on the language of the server.
_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_BLOB = sa.LargeBinary()

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("action", _ID, nullable=False),
    sa.Column("standing", sa.Text, nullable=False),  # the outcome, or the state while there is none
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
    sa.Column("plan", _ID),  # of a routed task; none: any worker of its action takes it
    sa.Column("reply_to", sa.Text, nullable=False),  # queue names with a space between
    sa.Column("message", _BLOB),
    sa.Column("result", _BLOB),
    # Every listing is a range of one of these, or a merge of a few: see `reads.py`.
    sa.Index("tasks_by_standing", "standing", "submitted_ms", "id"),
    sa.Index("tasks_by_action_and_standing", "action", "standing", "submitted_ms", "id"),
    # Every task leaves old versions of its row behind: cleaned up at one in a hundred, not at one in five.
    postgresql_with=_EAGER_VACUUM,
)
_is_routed = tasks.c.plan.is_not(None)
sa.Index("tasks_by_plan", tasks.c.plan, sqlite_where=_is_routed, postgresql_where=_is_routed)
_ended = tasks.c.ended_ms.is_not(None)
_with_payload = sa.and_(_ended, tasks.c.message.is_not(None))
sa.Index("tasks_ended", tasks.c.ended_ms, sqlite_where=_ended, postgresql_where=_ended)
sa.Index("tasks_payload", tasks.c.ended_ms, sqlite_where=_with_payload, postgresql_where=_with_payload)

letters = sa.Table(
    "letters",
    metadata,
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
    sa.Column("message", _BLOB, nullable=False),
    sa.Index("letters_dead", "dead_ms"),
)
_waits = letters.c.redriven_ms.is_(None)
sa.Index("letters_waiting", letters.c.dead_ms, letters.c.task_id, sqlite_where=_waits, postgresql_where=_waits)
sa.Index(
    "letters_by_action",
    letters.c.action,
    letters.c.dead_ms,
    letters.c.task_id,
    sqlite_where=_waits,
    postgresql_where=_waits,
)

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("task_id", _ID, nullable=False),
    sa.Column("taken_until_ms", sa.BigInteger, nullable=False),
    sa.Column("publication", _BLOB, nullable=False),
    postgresql_with=_EAGER_VACUUM,
    sqlite_autoincrement=True,  # a number is never used twice: a late `Sent` must not take out another's message
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", _ID, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),  # empty: released
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
)

limits = sa.Table(
    "limits",
    metadata,
    sa.Column("key", _ID, primary_key=True),
    sa.Column("next_ms", sa.Double, nullable=False),  # the theoretical arrival time of the next start
)

slots = sa.Table(
    "slots",
    metadata,
    sa.Column("key", _ID, primary_key=True),
    sa.Column("holder", _ID, primary_key=True),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
)

# --- Routed tasks, and the nodes that run them ------------------------------------------------------------

steps = sa.Table(
    "steps",
    metadata,
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
    sa.Column("story", _BLOB, nullable=False),
    sa.Column("output", _BLOB),
    postgresql_with=_EAGER_VACUUM,
)
_is_timed = steps.c.due_ms.is_not(None)
_is_sent = steps.c.state == sa.literal_column("'sent'")
sa.Index("steps_due", steps.c.due_ms, sqlite_where=_is_timed, postgresql_where=_is_timed)
sa.Index("steps_sent", steps.c.node_id, sqlite_where=_is_sent, postgresql_where=_is_sent)

owed = sa.Table(
    "owed",
    metadata,
    # Of a bill, by chance: several programs make them.
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("taken_until_ms", sa.BigInteger, nullable=False),
    sa.Column("keys", _BLOB, nullable=False),  # of its messages
    sa.Column("publications", _BLOB, nullable=False),
    sa.Index("owed_taken", "taken_until_ms", "number"),
    postgresql_with=_EAGER_VACUUM,
)

# On SQLite alone. The values of rows of tasks, steps, bills and plans, in the order of their columns: a migration that
# changes those copies the slips first.
slips = sa.Table(
    "slips",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("error", sa.Text),  # why no table takes what it says; none: it is to be copied
    sa.Column("content", _BLOB, nullable=False),
)

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("id", _ID, primary_key=True),  # of its content: a plan never changes
    sa.Column("used_ms", sa.BigInteger, nullable=False),
    sa.Column("doc", _BLOB, nullable=False),
    sa.Index("plans_used", "used_ms"),
)

plan_names = sa.Table(
    "plan_names",
    metadata,
    sa.Column("name", _ID, primary_key=True),
    sa.Column("plan", _ID, nullable=False),
    sa.Column("put_ms", sa.BigInteger, nullable=False),
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("node_id", _ID, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("seen_ms", sa.BigInteger, nullable=False),
    sa.Column("doc", _BLOB, nullable=False),
    sa.Index("nodes_by_version", "version"),
)

breakers = sa.Table(
    "breakers",
    metadata,
    sa.Column("node_id", _ID, primary_key=True),
    sa.Column("action", _ID, primary_key=True),  # empty: the node as a whole
    sa.Column("failures", sa.BigInteger, nullable=False),
    sa.Column("down_until_ms", sa.BigInteger, nullable=False),
    sa.Column("trial_ms", sa.BigInteger, nullable=False),
    sa.Column("changed_ms", sa.BigInteger, nullable=False),
)

counters = sa.Table(
    "counters",
    metadata,
    sa.Column("name", _ID, primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)

# --- Who may use the API ----------------------------------------------------------------------------------

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("name", _ID, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger),  # none: never
    sa.Column("used_ms", sa.BigInteger),
    sa.Column("revoked_ms", sa.BigInteger),
    sa.Column("digest", _BLOB, nullable=False),  # of the secret, which is nowhere
)
