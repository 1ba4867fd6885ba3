"""What can be found: signed-off incidents and runbook sections, each as a short text.

The text of an incident is its first fault, the lines beside it and what people said; it leaves out
numbers, hosts and paths, so that another job with the same cause reads alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rerail.domain.incident import Incident
from rerail.knowledge_base.fingerprint import fingerprint
from rerail.knowledge_base.store.incidents import IncidentFile
from rerail.knowledge_base.taxonomy import leaves
from rerail.lazy_patterns import lazy
from rerail.log_parsers.masks import is_protected, mask

INCIDENT, RUNBOOK = "incident", "runbook"
_MOST_LINES = 6  # more of them are boilerplate that other causes print as well


@dataclass(frozen=True, slots=True)
class Document:
    """One thing that can be found. `time` is ISO 8601 in UTC, empty for a runbook."""

    id: str
    kind: str
    title: str
    text: str
    core: str = ""
    leaf: str | None = None
    cluster: str = ""
    time: str = ""
    fingerprint: str = ""
    entity: str | None = None


CORE_WEIGHT = 4
"""How much the first fault's wording counts beside the other lines."""


def searched_text(document: Document) -> str:
    """Return a document as it is indexed: the wording of the first fault counts several times."""
    return f"{document.core}\n" * (CORE_WEIGHT - 1) + f"{document.title}\n{document.text}"


def core_of(incident: Incident) -> str:
    """Return the wording of the first fault and its repetitions: what the failure is known by."""
    diagnosis = incident.diagnosis
    lines = [diagnosis.first_fault.text] if diagnosis.first_fault is not None else []
    lines += [e.text for e in diagnosis.evidence if e.role == "initiating"]
    if not lines:
        lines = [x.text for x in incident.snapshot.lines if is_protected(x.text)][-3:]
    return wording(lines)


def query_of(incident: Incident, parts: Sequence[str] | None = None) -> str:
    """Return the text of an incident as a question: its wordings, then `PARTS`."""
    evidence = incident.diagnosis.evidence
    lines = [e.text for e in evidence if e.role == "context"]
    lines += [e.text for e in evidence if e.role == "cascade"]
    lines += [x.text for x in incident.snapshot.lines if is_protected(x.text)]
    rows = [*core_of(incident).splitlines(), *wording(lines).splitlines()]
    rows = list(dict.fromkeys(rows))[:_MOST_LINES]
    return "\n".join(
        [
            *rows,
            *(
                row
                for part in (PARTS if parts is None else parts)
                if (row := _PARTS[part](incident))
            ),
        ]
    )


def frames(incident: Incident) -> str:
    """Return the functions of the user's own files that the traceback of the first fault names."""
    first = incident.diagnosis.first_fault
    if first is None:
        return ""
    found = []
    for line in incident.snapshot.lines:
        near = line.file == first.file and first.line - _FRAMES <= line.number <= first.line
        if near and line.rank in (None, first.rank):
            found += [m for m in _FRAME.finditer(line.text) if not _LIBRARY.search(m["path"])]
    return " ".join(
        dict.fromkeys(f"{m['path'].rpartition('/')[2]} {m['where']}" for m in found[-4:])
    )


def chain(incident: Incident) -> str:
    """Return what followed from the first fault, in order: the kinds of its consequences."""
    return " ".join(dict.fromkeys(c.failure_type for c in incident.diagnosis.consequences[:4]))


def cause(incident: Incident) -> str:
    """Return the title of the runbook page of the cause that the rules found."""
    leaf = leaves().get(incident.diagnosis.failure_type or "")
    return f"{leaf.id} {leaf.meaning}" if leaf else ""


_FRAMES = 80  # lines of a traceback
_FRAME = lazy(r'File "(?P<path>[^"]+)", line \d+, in (?P<where>\S+)')
_LIBRARY = lazy(r"site-packages/|dist-packages/|/lib/python|^<")
_PARTS: dict[str, Callable[[Incident], str]] = {"frames": frames, "chain": chain, "cause": cause}
PARTS: tuple[str, ...] = ("frames", "chain", "cause")
"""What stands in a question and in an incident besides its wordings; measured by `eval retrieval`."""


def wording(lines: Iterable[str]) -> str:
    """Return lines without what varies, each wording once."""
    masked = (mask(_KEEP.sub(_code_word, line)) for line in lines)
    seen = dict.fromkeys(" ".join(text.replace("<*>", " ").split()) for text in masked)
    return "\n".join([text for text in seen if text][:_MOST_LINES])


def _code_word(match: re.Match[str]) -> str:
    # Spelt with letters, so that the mask of numbers leaves it alone: Xid 79 becomes xid_hj.
    return f" {match[1].lower()}_{match[2].translate(_LETTERS)} "


_LETTERS = str.maketrans("-0123456789", "nabcdefghij")
# Codes that name a cause are words, not numbers: Xid 79, errno 28, signal 9, status 12.
_KEEP = lazy(
    r"(?i)\b(xid|sxid|errno|signal|exitcode|status|error)\b[^\w\n]{0,4}(?:\([^)]{0,40}\)\W{0,3})?(-?\d{1,5})\b"
)


def document_of(file: IncidentFile) -> Document:
    """Return a signed-off incident as a document: words said behind the sign-off are not in it."""
    said = []
    for entry in file.vouched():
        if entry.kind == "note":
            said.append(entry.text)
        elif entry.kind in ("confirmed", "signed_off"):
            said.append(str(entry.data.get("note") or entry.data.get("resolution") or ""))
    return incident_document(file.incident, file.row.true_type, said)


def incident_document(
    incident: Incident,
    failure_type: str | None,
    said: Iterable[str] = (),
    parts: Sequence[str] | None = None,
) -> Document:
    """Return an incident as a document, under the failure type that a person vouched for."""
    leaf = leaves().get(failure_type or "")
    meaning = leaf.meaning if leaf else ""
    prints = fingerprint(incident.diagnosis)
    return Document(
        id=incident.id,
        kind=INCIDENT,
        title=f"{failure_type or 'unknown'}: {meaning}",
        text="\n".join([query_of(incident, parts), *(s for s in (meaning, *said) if s)]),
        core=core_of(incident),
        leaf=failure_type,
        cluster=incident.cluster,
        time=incident.occurred_at or incident.recorded_at,
        fingerprint=prints.root,
        entity=prints.entity,
    )
