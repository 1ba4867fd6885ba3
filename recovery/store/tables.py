"""The tables of recovery as SQLAlchemy sees them; migration 0002 and 0003 create them.

Times here are seconds since the epoch: they are compared and added to, never shown as they are.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Float, Integer, MetaData, String, Table, Text

METADATA = MetaData()
_ID = BigInteger().with_variant(Integer(), "sqlite")

QUEUE = Table(
    "recovery_queue",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("key", String(255)),
    Column("state", String(16)),
    Column("event", JSON),
    Column("received_at", Float),
    Column("not_before", Float),
    Column("claimed_by", Text),
    Column("claimed_until", Float),
    Column("tries", Integer),
    Column("note", Text),
    Column("incident", String(32)),
    Column("done_at", Float),
)
PLANS = Table(
    "recovery_plans",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("incident", String(32)),
    Column("cluster", Text),
    Column("job", Text),
    Column("attempt", Integer),
    Column("digest", String(64)),
    Column("made_at", Float),
    Column("expires_at", Float),
    Column("body", JSON),
    Column("signature", String(64)),
)
ACTIONS = Table(
    "recovery_actions",
    METADATA,
    Column("plan", String(32), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("kind", String(32)),
    Column("target", Text),
    Column("state", String(16)),
    Column("changed_at", Float),
    Column("not_before", Float),
    Column("carried_out_at", Float),
    Column("tries", Integer),
    Column("holder", Text),
    Column("note", Text),
)
APPROVALS = Table(
    "recovery_approvals",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("plan", String(32)),
    Column("step", Integer),
    Column("digest", String(64)),
    Column("target", Text),
    Column("decision", String(16)),
    Column("by", Text),
    Column("made_at", Float),
    Column("expires_at", Float),
    Column("signature", String(64)),
)
AUDIT = Table(
    "recovery_audit",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("time", String(32)),
    Column("actor", Text),
    Column("what", String(48)),
    Column("subject", Text),
    Column("body", JSON),
    Column("previous", String(64)),
    Column("digest", String(64)),
)
GROUPS = Table(
    "recovery_groups",
    METADATA,
    Column("incident", String(32), primary_key=True),
    Column("parent", String(32)),
    Column("root", Text),
    Column("joined_at", Float),
)
CONTROL = Table(
    "recovery_control",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("value", JSON),
)
