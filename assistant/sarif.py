"""A diagnosis as SARIF 2.1.0, which code hosts show beside a failed job (OASIS, sarif-v2.1.0-os)."""

from __future__ import annotations

from typing import Any

from rerail import __version__
from rerail.assistant.presentation.verdict import verdict_view
from rerail.assistant.presentation.words import type_words
from rerail.domain.diagnosis import Diagnosis, Evidence, Outcome, Status

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_LEVEL = {Status.ESTABLISHED: "error", Status.SUPPORTED: "error"}


def to_sarif(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the log with one result for a failure or an open question, none where nothing failed."""
    results = [] if diagnosis.outcome is Outcome.NO_FAILURE else [_result(diagnosis)]
    name = diagnosis.failure_type or "inconclusive"
    rules = [{"id": name, "shortDescription": {"text": type_words(name)}}] if results else []
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "rerail", "version": __version__, "rules": rules}},
                "results": results,
            }
        ],
    }


def _result(diagnosis: Diagnosis) -> dict[str, Any]:
    view = verdict_view(diagnosis)
    first = next((e for e in diagnosis.evidence if e.role == "initiating"), None)
    profiles = f" Profiles: {view.profiles}." if view.profiles else ""
    text = f"{view.headline}. {view.status}.{profiles} Do: {view.do}."
    return {
        "ruleId": diagnosis.failure_type or "inconclusive",
        "level": _LEVEL.get(diagnosis.status, "warning"),
        "message": {"text": text},
        "locations": [_location(first)] if first else [],
        "relatedLocations": [
            {**_location(e), "id": i, "message": {"text": f"{e.id} {e.role}"}}
            for i, e in enumerate(diagnosis.evidence, 1)
            if e is not first
        ],
        "properties": {
            "incident": diagnosis.incident,
            "action": str(diagnosis.recovery.action),
            **_profiles(diagnosis),
        },
    }


def _profiles(diagnosis: Diagnosis) -> dict[str, Any]:
    found = diagnosis.profiles
    return {} if found is None else {"profiles": found.model_dump(mode="json")}


def _location(item: Evidence) -> dict[str, Any]:
    from urllib.parse import quote

    region = {"startLine": item.line, "snippet": {"text": item.text}}
    return {"physicalLocation": {"artifactLocation": {"uri": quote(item.file)}, "region": region}}
