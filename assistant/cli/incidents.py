"""`rerail incidents`, `show`, `timeline`, `similar`, `confirm`, `signoff`: look back and judge."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rerail.assistant.presentation.incident import ListRow, list_row
from rerail.assistant.regression_case import says_now, write_case
from rerail.assistant.render import render
from rerail.assistant.response import what_was_done
from rerail.assistant.since import since_iso
from rerail.assistant.stored import load_incident, who
from rerail.domain.incident import SignOff, SnapshotLine
from rerail.errors import UsageError
from rerail.knowledge_base.store.alike import alike
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.incidents import (
    LAPSED,
    IncidentFile,
    IncidentRow,
    count_healthy,
    diagnosis_of,
    find_id,
    list_incidents,
    load,
)
from rerail.knowledge_base.store.judgement import sign_off
from rerail.knowledge_base.store.opened import opened_store
from rerail.knowledge_base.taxonomy import NO_FAILURE

_WINDOW = 12
_SAID = {"confirmed": "CONFIRMED", "signed_off": "SIGN-OFF", LAPSED: "SIGN-OFF", "note": "NOTE"}


def console() -> Console:
    """Return a console that neither wraps nor interprets what logs say."""
    return Console(width=None if sys.stdout.isatty() else 130, soft_wrap=True, highlight=False)


def incidents_command(
    *,
    since: str | None,
    failure_type: str | None,
    node: str | None,
    job: str | None,
    everything: bool,
    limit: int,
    json_output: bool,
) -> int:
    """List incidents, the latest first; runs without a failure only where they are asked for."""
    start = None if since is None else since_iso(since)
    if failure_type == NO_FAILURE:
        everything = True
    with opened_store() as engine, reading(engine) as connection:
        rows = list_incidents(
            connection,
            since=start,
            failure_type=failure_type,
            node=node,
            job=job,
            healthy=everything,
            limit=limit,
        )
        listed = (
            [] if json_output else [list_row(row, diagnosis_of(connection, row.id)) for row in rows]
        )
        hidden = 0
        if not everything:
            hidden = count_healthy(
                connection, since=start, failure_type=failure_type, node=node, job=job
            )
    if json_output:
        print(json.dumps([_as_dict(row) for row in rows], indent=2))
        return 0
    if rows:
        _print_rows(listed)
    elif not hidden:
        filtered = start or failure_type or node or job
        print(
            "no incident on record is like that; rerail incidents lists all"
            if filtered
            else "no incident is on record; rerail diagnose PATH_TO_LOGS makes one"
        )
    if hidden:
        runs = "1 diagnosis" if hidden == 1 else f"{hidden} diagnoses"
        print(f"{runs} without a failure not shown; add --all")
    return 0


def _print_rows(rows: list[ListRow]) -> None:
    """Print each incident as the page lists it: when, which, how firmly; below it the sentence and its type."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for row in rows:
        head = [
            row.when.removesuffix(" UTC"),
            row.id,
            row.status,
            f"job {row.job}" if row.job else "",
            row.said,
        ]
        print(_within("  ".join(part for part in head if part), width, ""))
        type_id = f"   [{row.type_id}]" if row.type_id and row.failed else ""
        print(_within(f"{row.headline}{type_id}", width, "    "))


def _within(text: str, width: int, indent: str) -> str:
    """Return text wrapped to a terminal; what goes into a pipe stays on its line."""
    if not width:
        return indent + text
    return textwrap.fill(
        text, max(width, 40), initial_indent=indent, subsequent_indent=indent or "    ", break_on_hyphens=False
    )  # fmt: skip


def _as_dict(row: IncidentRow) -> dict[str, object]:
    return {field: getattr(row, field) for field in IncidentRow.__dataclass_fields__}


def show_command(
    name: str,
    *,
    evidence: str | None,
    json_output: bool,
    verbose: bool,
    reasons: bool = False,
    graph: Path | None = None,
) -> int:
    """Print one incident as it was diagnosed, the window around a line, or why it was concluded."""
    file = load_incident(name)
    if graph is not None:
        from rerail.assistant.why import write_graph

        write_graph(file.diagnosis, graph)
        print(f"written: {graph}")
        if not reasons:
            return 0
    if reasons:
        from rerail.assistant.why import why

        print("\n".join(why(file.diagnosis)))
        return 0
    if json_output:
        body = file.incident.model_dump(mode="json")
        body["timeline"] = [e.model_dump(mode="json") for e in file.timeline]
        print(json.dumps(body, indent=2))
        return 0
    if evidence is not None:
        return _show_evidence(file, evidence)
    out = console()
    head = f"{file.row.id}   {file.row.cluster}"
    if file.incident.job is not None:
        head += f"   job {file.incident.job.job} attempt {file.incident.job.attempt}"
    head += f"   recorded {file.row.recorded_at[:19].replace('T', ' ')} UTC"
    out.print(Text(head, style="bold"))
    render(file.diagnosis, out, verbose=verbose, done=what_was_done(file))
    for entry in file.timeline:
        if entry.kind in _SAID:
            out.print(Text(f"{_SAID[entry.kind]:<10}{entry.text}  {entry.actor}".rstrip()))
    return 0


def _show_evidence(file: IncidentFile, name: str) -> int:
    found = next((e for e in file.diagnosis.evidence if e.id.lower() == name.lower()), None)
    if found is None:
        known = ", ".join(e.id for e in file.diagnosis.evidence) or "none"
        raise UsageError(
            f"{file.row.id} has no evidence {name!r}", subject=name, hint=f"one of {known}"
        )
    out = console()
    out.print(Text(f"{found.id}  {found.file}:{found.line}  {found.role}", style="bold"))
    lines = window(file, found.file, found.line)
    for line in lines:
        mark = ">" if line.number == found.line else " "
        style = "bold" if mark == ">" else ""
        out.print(Text(f"{mark}{line.number:>8}  {line.text}", style=style))
    if not any(line.number == found.line for line in lines):
        out.print(Text(f">{found.line:>8}  {found.text}", style="bold"))
    return 0


def window(file: IncidentFile, name: str, number: int, reach: int = _WINDOW) -> list[SnapshotLine]:
    """Return the kept lines of one file around a line number."""
    return [
        line
        for line in file.incident.snapshot.lines
        if line.file == name and abs(line.number - number) <= reach
    ]


def timeline_command(name: str, *, json_output: bool) -> int:
    """Print the timeline of an incident in UTC."""
    file = load_incident(name)
    if json_output:
        print(json.dumps([e.model_dump(mode="json") for e in file.timeline], indent=2))
        return 0
    out = console()
    for entry in file.timeline:
        when = entry.time[:23].replace("T", " ").rstrip("Z")
        where = f"  [{', '.join(entry.evidence)}]" if entry.evidence else ""
        actor = f" {entry.actor}" if entry.actor else ""
        out.print(Text(f"{when:<24}{entry.source}{actor} {entry.kind}: {entry.text}{where}"))
    return 0


def similar_command(name: str, *, limit: int, json_output: bool) -> int:
    """Print incidents of the same cause, signed-off ones in like words, and the runbook page."""
    from rerail.assistant.explained import runbook_page
    from rerail.knowledge_base.retrieval.documents import INCIDENT
    from rerail.knowledge_base.retrieval.knowledge import open_knowledge, question_of

    with opened_store() as engine:
        with reading(engine) as connection:
            file = load(connection, name)
            rows = alike(connection, file.row, limit=limit)
            listed = [list_row(row, diagnosis_of(connection, row.id)) for row in rows]
        knowledge = open_knowledge(engine)
        question = question_of(file.incident)
        found = knowledge.search(question, most=limit, kind=INCIDENT) if file.row.failed else []
        hits = [h for h in found if h.seen]
    if knowledge.banner:
        print(f"rerail: {knowledge.banner}", file=sys.stderr)
    if json_output:
        body = {
            "incident": file.row.id,
            "seen": bool(rows or hits),
            "alike": [{**_as_dict(r), "why": _why(file.row, r)} for r in rows],
            "signed_off": [
                {"id": h.document.id, "failure_type": h.document.leaf, "why": h.why} for h in hits
            ],
            "runbook": runbook_page(file.row.true_type or ""),
        }
        print(json.dumps(body, indent=2))
        return 0
    out = console()
    if not file.row.failed:
        out.print(f"{file.row.id} is no failure: there is nothing to compare")
    elif not rows and not hits:
        out.print(f"unseen: no other incident on record is like {file.row.id}")
    if rows:
        _print_rows(listed)
    for row in rows[:3]:
        out.print(Text(f"{row.id}: {_why(file.row, row)}"))
    shown = {row.id for row in rows}
    for hit in hits:
        if hit.document.id not in shown:
            out.print(Text(f"{hit.document.id}: {hit.document.title}; signed off, {hit.why}"))
    page = runbook_page(file.row.true_type or "")
    if page is not None:
        out.print()
        out.print(Text(page))
    return 0


def _why(one: IncidentRow, other: IncidentRow) -> str:
    if one.entity is not None and one.entity == other.entity:
        return "same cause on the same node and GPU"
    if one.fingerprint == other.fingerprint:
        return "same cause, seen by the same rule"
    return "same failure type"


def confirm_command(
    name: str,
    *,
    verdict: str,
    failure_type: str | None,
    first_fault: str | None,
    note: str,
    by: str | None,
) -> int:
    """Write down whether the verdict was right."""
    from rerail.assistant.feedback import give_feedback

    for told in give_feedback(
        name,
        verdict=verdict,
        failure_type=failure_type,
        first_fault=first_fault,
        note=note,
        by=who(by),
    ):
        print(told)
    return 0


def signoff_command(name: str, *, resolution: str, by: str | None) -> int:
    """Write down that the record is true and complete; it may be retrieved from now on."""
    with opened_store() as engine, writing(engine) as connection:
        found = find_id(connection, name)
        sign_off(connection, found, SignOff(by=who(by), time=now_iso(), resolution=resolution))
        file = load(connection, found)
        case = write_case(file)
    print(f"{found}: signed off; it is knowledge from now on")
    print(f"its regression case is in {case}; run them: rerail eval cases {case}")
    now = says_now(file)
    if now is not None:
        print(f"the case does not hold yet: from its kept lines the rules say {now}")
    return 0
