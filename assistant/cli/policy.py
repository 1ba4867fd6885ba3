"""The body of `rerail policy readiness`."""

from __future__ import annotations

import json

from rerail.assistant.watch.site import load_site
from rerail.domain.plan import Mode
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.opened import opened_store
from rerail.recovery.readiness import records

COLUMNS = ("agreed", "rejected", "failed", "expired", "open", "alone")


def readiness_command(json_output: bool) -> int:
    """Print what people decided on each rule's proposals; exit code 0."""
    site = load_site()
    needed = site.policy.approvals.agreed_before_auto
    with opened_store() as engine, reading(engine) as connection:
        found = records(connection, site.policy)
    if json_output:
        shown = [
            {
                "rule": one.rule,
                "mode": one.mode,
                "plans": one.plans,
                **{name: one.counts[name] for name in COLUMNS},
                "ready": not one.missing(needed),
                "missing": one.missing(needed),
            }
            for one in found
        ]
        print(json.dumps({"agreed_before_auto": needed, "rules": shown}, indent=1))
        return 0
    print(f"{'rule':<24} {'mode':<9} plans  " + "  ".join(f"{name:>8}" for name in COLUMNS))
    for one in found:
        counts = "  ".join(f"{one.counts[name]:>8}" for name in COLUMNS)
        print(f"{one.rule:<24} {one.mode or '-':<9} {one.plans:>5}  {counts}")
        why = one.missing(needed)
        if one.mode is Mode.AUTO_LOW:
            said = "acts alone" + (f", and its record would not carry it: {why}" if why else "")
        else:
            said = f"not ready for auto-low: {why}" if why else "ready for auto-low"
        print(f"{'':<24} {said}")
    return 0
