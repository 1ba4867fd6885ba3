"""A plan for an incident that no event brought: somebody ran `rerail diagnose` and asks what to do.

Nothing but the logs speaks here: no scheduler has said that the job ended, where it ran or that a
node is gone. The policy is told just that, and so refuses what needs such a witness.
"""

from __future__ import annotations

import time

from sqlalchemy import Connection

from rerail.assistant.watch.note_plan import note_plan
from rerail.assistant.watch.site import Site
from rerail.domain.job import JobRef
from rerail.domain.plan import Mode, RecoveryPlan
from rerail.knowledge_base.store.incidents import load
from rerail.recovery.policy import decide
from rerail.recovery.signing import signing_key
from rerail.recovery.site_policy import SitePolicy
from rerail.recovery.situation import UNKNOWN_JOB, Situation
from rerail.recovery.store import plans

UNKNOWN_STATE = "UNKNOWN"


def plan_incident(connection: Connection, site: Site, name: str) -> RecoveryPlan:
    """Decide on an incident from its record alone, and store the plan.

    Raises:
        UsageError: no incident is called like that.
    """
    found = load(connection, name)
    incident = found.incident
    plan = decide(
        Situation(
            incident=incident.id,
            job=incident.job or JobRef(job=UNKNOWN_JOB),
            state=UNKNOWN_STATE,
            diagnosis=incident.diagnosis,
            now=time.time(),
        ),
        _asking(site.policy),
    )
    plans.save(connection, plan, signing_key(site.data))
    note_plan(connection, plan, " (asked for; no scheduler event)")
    return plan


def _asking(policy: SitePolicy) -> SitePolicy:
    """Return a policy that asks where the site's would act: whoever looks at a plan starts nothing.

    The job's number itself may come from the text of a log.
    """
    rules = (
        one.model_copy(update={"mode": Mode.PROPOSE}) if one.mode is Mode.AUTO_LOW else one
        for one in policy.rules
    )
    default = Mode.PROPOSE if policy.default_mode is Mode.AUTO_LOW else policy.default_mode
    return policy.model_copy(update={"rules": tuple(rules), "default_mode": default})
