"""A store on each database, empty, and incidents to put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from rerail.domain.diagnosis import Diagnosis
from rerail.domain.incident import Incident
from rerail.knowledge_base.fingerprint import fingerprint, incident_id
from rerail.knowledge_base.store.engine import open_store
from rerail.settings import Settings


@pytest.fixture
def settings(empty_store_url: str, tmp_path: Path) -> Settings:
    """Settings of an empty store."""
    return Settings(store_url=empty_store_url, data_dir=tmp_path / "data")


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    """An open, empty store."""
    opened = open_store(settings)
    yield opened
    opened.dispose()


@pytest.fixture
def incident() -> Callable[..., Incident]:
    """Make an incident: leaf, node, time and job may be chosen."""

    def make(
        name: str = "a",
        *,
        leaf: str = "gpu_fallen_off_bus",
        node: str | None = "gpu-7",
        time: str = "2026-03-01T03:00:00.000Z",
        summary: str = "GPU lost.",
        outcome: str = "failure",
    ) -> Incident:
        diagnosis = Diagnosis.model_validate(
            {
                "outcome": outcome,
                "status": "established",
                "failure_type": leaf,
                "category": "x",
                "layer": "infrastructure",
                "summary": summary,
                "first_fault": {"file": "dmesg", "line": 7, "text": "Xid 79", "time": time},
                "suspects": {"nodes": [node] if node else []},
                "evidence": [
                    {"id": "E1", "file": "dmesg", "line": 7, "text": "Xid 79", "time": time, "role": "initiating"}
                ],
                "recovery": {"action": "none"},
                "incident": incident_id(name),
            }
        )  # fmt: skip
        return Incident(
            id=incident_id(name),
            identity=name,
            cluster="local",
            recorded_at=time,
            occurred_at=time,
            diagnosis=diagnosis,
            fingerprint=fingerprint(diagnosis),
        )

    return make
