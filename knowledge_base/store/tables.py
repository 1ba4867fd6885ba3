"""The tables of incidents as SQLAlchemy sees them; the migrations create them.

Kept by hand in step with `migrations/`; a test compares the two on a fresh store. A wing that adds
tables keeps their definitions in its own module and adds a migration here.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Integer, MetaData, String, Table, Text

METADATA = MetaData()
_ID = BigInteger().with_variant(Integer(), "sqlite")

INCIDENTS = Table(
    "incidents",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("identity", Text),
    Column("cluster", Text),
    Column("job", Text),
    Column("attempt", Integer),
    Column("recorded_at", String(32)),
    Column("occurred_at", String(32)),
    Column("outcome", String(16)),
    Column("status", String(16)),
    Column("failure_type", Text),
    Column("fingerprint", String(32)),
    Column("entity", String(32)),
    Column("confirmed", String(8)),
    Column("confirmed_type", Text),
    Column("signed_off_at", String(32)),
    Column("record", JSON),
)
DIAGNOSES = Table(
    "diagnoses",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("incident", String(32)),
    Column("content", String(64)),
    Column("recorded_at", String(32)),
    Column("diagnosis", JSON),
)
SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("incident", String(32)),
    Column("content", String(64)),
    Column("recorded_at", String(32)),
    Column("body", JSON),
)
TIMELINE = Table(
    "timeline",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("incident", String(32)),
    Column("number", Integer),
    Column("entry_key", String(128)),
    Column("time", String(32)),
    Column("recorded_at", String(32)),
    Column("source", String(16)),
    Column("kind", String(48)),
    Column("text", Text),
    Column("actor", Text),
    Column("evidence", JSON),
    Column("data", JSON),
)
SUSPECT_NODES = Table(
    "suspect_nodes",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("incident", String(32)),
    Column("cluster", Text),
    Column("node", Text),
    Column("time", String(32)),
    Column("failure_type", Text),
    Column("status", String(16)),
)
CHAT_MESSAGES = Table(
    "chat_messages",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("incident", String(32)),
    Column("recorded_at", String(32)),
    Column("role", String(16)),
    Column("text", Text),
    Column("data", JSON),
)
DRAFTS = Table(
    "drafts",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("subject", Text),
    Column("kind", String(16)),
    Column("recorded_at", String(32)),
    Column("content", String(64)),
    Column("body", Text),
    Column("data", JSON),
)
DOCUMENTS = Table(
    "documents",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("incident", String(32)),
    Column("time", String(32)),
    Column("fingerprint", String(32)),
    Column("body", JSON),
    Column("words", Text),
)
DOCUMENT_TERMS = Table(
    "document_terms",
    METADATA,
    Column("term", Text, primary_key=True),
    Column("documents", Integer),
    Column("words", _ID),
)
DOCUMENT_QUEUE = Table("document_queue", METADATA, Column("incident", String(32), primary_key=True))
RULE_CANDIDATES = Table(
    "rule_candidates",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("kind", String(16)),
    Column("state", String(16)),
    Column("recorded_at", String(32)),
    Column("decided_at", String(32)),
    Column("decided_by", Text),
    Column("body", JSON),
)
RULE_SUPPORT = Table(
    "rule_support",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("candidate", String(64)),
    Column("incident", String(32)),
    Column("recorded_at", String(32)),
    Column("verdict", String(16)),
)
