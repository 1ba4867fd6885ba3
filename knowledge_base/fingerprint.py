"""What makes two failures alike, and what makes two diagnoses one incident.

The fingerprint names the root cause; the identity names the event. Both are hashes of things that
do not change when a log is moved, renamed or compressed.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable
from hashlib import sha256

from rerail.domain.diagnosis import Diagnosis
from rerail.domain.incident import Fingerprint, SourceFile
from rerail.domain.job import JobRef
from rerail.log_parsers.masks import mask


def fingerprint(diagnosis: Diagnosis, version: str = "") -> Fingerprint:
    """Return the fingerprint of a verdict, by the version in force or a named one.

    A version is never edited: what is stored was made by it, and a changed rule would tell apart what
    was alike. A better rule is a further version (as Sentry's grouping configurations are); a snapshot
    holds what each one returns.

    Raises:
        KeyError: when no version has this name.
    """
    return VERSIONS[version or CURRENT](diagnosis)


def _v1(diagnosis: Diagnosis) -> Fingerprint:
    """The leaf and the rule that saw it; without a rule, the leaf and the masked text of the first fault.

    The entity adds the first accused node and GPU.
    """
    first = diagnosis.first_fault
    by = "" if first is None else first.rule or mask(first.text)
    root = _short(f"{diagnosis.failure_type or '?'}\n{by}")
    node = next(iter(diagnosis.suspects.nodes), None)
    gpu = next((str(g.gpu) for g in diagnosis.suspects.gpus), "")
    return Fingerprint(root=root, entity=None if node is None else _short(f"{root}\n{node}\n{gpu}"))


VERSIONS: dict[str, Callable[[Diagnosis], Fingerprint]] = {"v1": _v1}
CURRENT = "v1"


def evidence_identity(sources: tuple[SourceFile, ...]) -> str:
    """Return the identity of evidence: the set of what its files hold, whatever they are called."""
    return "evidence:" + sha256("\n".join(sorted({s.digest for s in sources})).encode()).hexdigest()


def job_identity(job: JobRef) -> str:
    """Return the identity of a job attempt, equal for every diagnosis of it."""
    return f"job:{job.key}"


def incident_id(identity: str) -> str:
    """Return the id of an incident: `INC-` and ten letters or digits of a hash.

    It is computed, not counted, so that a diagnosis needs no database to name its incident.
    """
    return "INC-" + b32encode(sha256(identity.encode()).digest()[:8]).decode()[:10].lower()


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
