"""The digest of a diagnosed job: a few pages that hold every line a rule hit."""

from __future__ import annotations

from rerail.assistant.pipeline import Outcome
from rerail.domain.evidence import Role
from rerail.log_parsers.digest import LIMIT, Digest, build_digest
from rerail.log_parsers.mined import miner_of

_ORDER = {
    Role.INITIATING: 0,
    Role.CASCADE: 1,
    Role.SUCCESS: 2,
    Role.TEARDOWN: 3,
    Role.CONTEXT: 4,
    Role.BENIGN: 5,
}
_KEPT = frozenset({Role.INITIATING, Role.CASCADE, Role.SUCCESS, Role.TEARDOWN, Role.CONTEXT})


def job_digest(outcome: Outcome, *, limit: int = LIMIT) -> Digest:
    """Build the digest of a diagnosed job, the first fault first.

    Files that were read with mining bring their templates along; small files are kept whole and
    are mined here.
    """
    observations = sorted(
        (o for o in outcome.case.observations if o.role in _KEPT),
        key=lambda o: (_ORDER[o.role], o.order),
    )
    order = [(e.file, e.line) for e in outcome.diagnosis.evidence]
    order += [(o.line.file, o.line.number) for o in observations]
    lines = [
        line
        for view in outcome.case.views
        for n in view.numbers
        if (line := view.line(n)) is not None
    ]
    return build_digest(
        ((view.name, miner_of(view)) for view in outcome.case.views), lines, order, limit=limit
    )
