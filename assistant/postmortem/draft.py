"""Fills the sections of a post-mortem from the record; the words come from rules or a model."""

from __future__ import annotations

from collections.abc import Sequence

from rerail.assistant.postmortem.charts import charts
from rerail.assistant.postmortem.document import Author, Document, Section, Sentence, Words
from rerail.assistant.postmortem.impact import Impact, impact_of, in_words
from rerail.assistant.postmortem.markup import code, escaped
from rerail.assistant.presentation.words import action_words, role_word, type_words
from rerail.domain.diagnosis import Diagnosis, Outcome
from rerail.domain.incident import EntrySource, TimelineEntry
from rerail.knowledge_base.store.incidents import IncidentFile

_MOST_ROWS = 60


def draft(file: IncidentFile, words: Words) -> Document:
    """Return the post-mortem of one incident."""
    diagnosis = file.diagnosis
    impact = impact_of(file.incident)
    sections = (
        Section("status", "Status", _status(file, words)),
        Section("summary", "Summary", _sentences(words.summary), Author.WORDS),
        Section("impact", "Impact", _impact(impact)),
        Section("timeline", "Timeline (UTC)", _timeline(file.timeline, diagnosis)),
        Section("fault", "Trigger, first fault and consequences", _fault(diagnosis, impact)),
        Section("evidence", "Evidence", _evidence(diagnosis)),
        Section("factors", "Contributing factors", _sentences(words.factors), Author.WORDS),
        Section("ruled-out", "Ruled out", _ruled_out(diagnosis)),
        Section("response", "Response", _response(file)),
        Section("lessons", "What went well, what went badly, where we were lucky", _lessons(words), Author.WORDS),
        Section("follow-ups", "Follow-ups", _follow_ups(diagnosis), Author.PEOPLE),
        *_unchecked(words),
        Section("appendix", "Appendix", _appendix(file, words)),
    )  # fmt: skip
    return Document(_title(file), sections, tuple(charts(file.incident)), words.digest)


def _unchecked(words: Words) -> list[Section]:
    """What a model wrote and code could not check: apart from the facts, and never signed with them."""
    if not words.unchecked:
        return []
    rows = ["Written by a model and checked by nobody; no sign-off covers this section.", ""]
    rows += [f"- {escaped(text)}" for text in words.unchecked]
    return [Section("model", "In the model's words, not verified", "\n".join(rows))]


def _title(file: IncidentFile) -> str:
    diagnosis = file.diagnosis
    if not file.row.failed:
        what = "no failure found"
    elif diagnosis.headline and file.row.true_type == diagnosis.failure_type:
        what = diagnosis.headline.split(";")[0]
    else:
        what = type_words(file.row.true_type)
        if diagnosis.suspects.nodes:
            what += f" on {', '.join(diagnosis.suspects.nodes[:2])}"
        elif diagnosis.suspects.ranks:
            what += f" on rank {', '.join(map(str, diagnosis.suspects.ranks[:3]))}"
    job = file.incident.job
    stopped = f", job {job.job} attempt {job.attempt}" if job else ""
    return f"Post-mortem {file.row.id}: {what}{stopped}"


def _status(file: IncidentFile, words: Words) -> str:
    signed = file.sign_off()
    state = "DRAFT, not reviewed"
    if signed:
        state = f"Reviewed and signed off by {escaped(signed.by)} on {signed.time[:10]}"
        if words.model_text and words.digest != signed.words_digest:
            # A sign-off covers the words that it saw; a model has written others since.
            state = (
                f"DRAFT: {escaped(signed.by)} signed off the record on {signed.time[:10]}, "
                "before the model wrote these words; they are not reviewed"
            )
    confirmed, lapsed = file.confirmation(), file.lapsed()
    if lapsed is not None:
        state += f"; on {lapsed.time[:10]} {escaped(lapsed.text)}"
    said = (
        f"{confirmed.verdict}, by {escaped(confirmed.by)}"
        if confirmed
        else "not confirmed by a person"
    )
    rows = [
        f"- State: {state}",
        f"- Verdict of the rules: {_verdict_words(file)}, {file.diagnosis.status}; {said}",
        f"- Words of summary, factors and lessons: {escaped(words.by)}",
        "- Owner: -",
        "- Reviewers: -",
        "- Severity: -",
    ]
    if words.banner:
        rows.append(f"- Note: {escaped(words.banner)}")
    return "\n".join(rows)


def _verdict_words(file: IncidentFile) -> str:
    found = file.diagnosis.failure_type
    return f"{type_words(found)} ({code(found)})" if found else "none"


def _sentences(sentences: Sequence[Sentence]) -> str:
    if not sentences:
        return "The record holds nothing on this."
    return "\n".join(f"- {sentence.markdown()}" for sentence in sentences)


def _impact(impact: Impact) -> str:
    def cell(value: float | None, unit: str) -> str:
        return "not known" if value is None else f"{value:g} {unit}".strip()

    hours = f"{impact.device} h"
    known = [
        ("time from the first fault to the first sign elsewhere", impact.unnoticed_s),
        ("time from the first fault to the last line", impact.to_the_end_s),
    ]
    rows = [
        (f"{impact.device}s of the job", cell(impact.gpus, "")),
        *((what, in_words(seconds)) for what, seconds in known if seconds is not None),
        *(
            []
            if impact.ran_on
            else [
                (
                    "idle from the first fault to the end of the logs",
                    cell(impact.idle_gpu_hours, hours),
                )
            ]
        ),
        ("steps to train again", cell(impact.lost_steps, "")),
        ("time to train them again", cell(impact.redo_gpu_hours, hours)),
        *_against_forecast(impact, hours),
        ("together", cell(impact.gpu_hours, hours)),
        ("jobs affected", str(impact.jobs)),
    ]
    return _table(("what", "how much"), rows)


def _against_forecast(impact: Impact, hours: str) -> list[tuple[str, str]]:
    """Return what steps took against what they should have taken; nothing without a forecast."""
    if impact.expected_step_s is None or impact.step_time_s is None:
        return []
    rows = [
        ("a step took", f"{impact.step_time_s:.4g} s"),
        ("a step should have taken", f"{impact.expected_step_s:.4g} s"),
    ]
    if impact.slower_s:
        gpu = "" if impact.slower_gpu_hours is None else f", {impact.slower_gpu_hours:g} {hours}"
        lost = f"{in_words(impact.slower_s)}{gpu}"
        rows.append(("lost to steps slower than the forecast", lost))
    return rows


def _entry_words(entry: TimelineEntry) -> str:
    """Return what an entry tells; what recovery wrote begins with its own word."""
    if entry.source is EntrySource.LOG:
        return f"{escaped(role_word(entry.kind))}: {code(entry.text[:200])}"
    word = "" if entry.source is EntrySource.RECOVERY else f"{entry.kind.replace('_', ' ')}: "
    return escaped(f"{word}{entry.text[:300]}")


def _timeline(entries: Sequence[TimelineEntry], diagnosis: Diagnosis) -> str:
    rows = [
        (
            entry.time[:23].replace("T", " ").rstrip("Z"),
            str(entry.source),
            _entry_words(entry),
            code(", ".join(entry.evidence)),
        )
        for entry in entries
    ]
    first = diagnosis.first_fault
    fault: tuple[str, str, str, str] | None = None
    if first is not None:
        place = f"{first.file}:{first.line}"
        known = [i for i, entry in enumerate(entries) if place in entry.evidence]
        if known:
            fault = rows.pop(known[0])
            at = known[0]
        else:
            # Its line carries no wall-clock time; it came before everything that followed from it.
            when = first.time[:23].replace("T", " ").rstrip("Z") if first.time else "no time given"
            fault = (when, "log", f"initiating: {code(first.text[:200])}", code(place))
            at = 0
        fault = (fault[0], fault[1], f"first fault: {fault[2].partition(': ')[2]}", fault[3])
        rows.insert(at, fault)
    if len(rows) > _MOST_ROWS:
        half = _MOST_ROWS // 2
        head, tail = rows[:half], rows[-half:]
        if fault is not None and fault not in (*head, *tail):
            head = [*head, fault]
        left = len(rows) - len(head) - len(tail)
        rows = [*head, ("", "", f"{left} more entries", ""), *tail]
    return _table(("time", "source", "what", "where"), rows)


def _fault(diagnosis: Diagnosis, impact: Impact) -> str:
    parts = []
    first = diagnosis.first_fault
    if first is None:
        parts.append("The first fault is not known.")
    else:
        place = [f"{first.file}:{first.line}"]
        place += [f"rank {first.rank}"] if first.rank is not None else []
        place += [f"node {first.node}"] if first.node else []
        place += [f"GPU {first.gpu}"] if first.gpu is not None else []
        decided = diagnosis.outcome is not Outcome.INCONCLUSIVE
        word = "First fault" if decided else "A lead, no verdict"
        parts.append(f"{word}: {code(first.text[:400])}")
        parts.append(
            f"At {escaped(', '.join(place))}" + (f", {first.time}." if first.time else ".")
        )
    for one in diagnosis.consequences[:8]:
        parts.append(
            f"- followed by {one.count} x {escaped(type_words(one.failure_type))}"
            + (f" on {len(one.ranks)} ranks" if one.ranks else "")
        )
    if impact.unnoticed_s is not None:
        parts.append(
            f"Detection gap: {in_words(impact.unnoticed_s)} from the first fault to the first sign of it elsewhere."
        )
    else:
        parts.append("Detection gap: not known; the lines carry no time.")
    return "\n\n".join(p for p in parts if not p.startswith("-")) + (
        "\n\n" + "\n".join(p for p in parts if p.startswith("-"))
        if any(p.startswith("-") for p in parts)
        else ""
    )


def _evidence(diagnosis: Diagnosis) -> str:
    table = _table(
        ("id", "where", "role", "line"),
        [
            (e.id, code(f"{e.file}:{e.line}"), role_word(e.role), code(e.text[:240]))
            for e in diagnosis.evidence[:24]
        ],
    )
    if diagnosis.profiles is None:
        return table
    return f"{table}\n\nBeside the logs: {escaped(diagnosis.profiles.says)}"


def _ruled_out(diagnosis: Diagnosis) -> str:
    if not diagnosis.ruled_out:
        return "No rival cause was in the evidence."
    return "\n".join(
        f"- {escaped(type_words(r.failure_type))}: {escaped(r.because)}"
        + (f" \\[{', '.join(r.evidence)}\\]" if r.evidence else "")
        for r in diagnosis.ruled_out
    )


def _response(file: IncidentFile) -> str:
    recovery = file.diagnosis.recovery
    rows = [f"- Recommended by the rules: {action_words(str(recovery.action))}"]
    if recovery.targets.nodes:
        rows[0] += f" ({escaped(', '.join(recovery.targets.nodes))})"
    # People are named here and nowhere else: the rest is blameless.
    acts = [
        e
        for e in file.timeline
        if e.source in (EntrySource.RECOVERY, EntrySource.SCHEDULER)
        or (e.source is EntrySource.HUMAN and e.kind != "note")
    ]
    rows += [
        f"- {e.time[:19].replace('T', ' ')} {escaped(e.actor or str(e.source))}: {escaped(e.text[:300])}"
        for e in acts
    ]
    if not acts:
        rows.append("- Nothing was approved or executed through rerail.")
    return "\n".join(rows)


def _lessons(words: Words) -> str:
    return "\n\n".join(
        f"**{title}**\n\n{_sentences(sentences)}"
        for title, sentences in (
            ("Went well", words.went_well),
            ("Went badly", words.went_badly),
            ("Lucky", words.lucky),
        )
    )


def _follow_ups(diagnosis: Diagnosis) -> str:
    rows = [
        ("detect", escaped(f"{m.what}: {m.how_to_get}"), "-", "-") for m in diagnosis.missing[:5]
    ]
    rows.append(("prevent", "-", "-", "-"))
    return _table(("type", "what", "owner", "due"), rows)


def _appendix(file: IncidentFile, words: Words) -> str:
    incident = file.incident
    versions = ", ".join(f"{k} {v}" for k, v in incident.snapshot.versions.items())
    said = file.explanation()
    used = sorted({e.rule for e in file.diagnosis.evidence if e.rule})
    rows = [
        ("incident", incident.id),
        ("identity", code(incident.identity)),
        ("recorded", incident.recorded_at),
        ("rules", f"version {incident.rules_version}: {escaped(', '.join(used)) or 'none fired'}"),
        ("versions in the logs", escaped(versions) or "not named"),
        ("model", escaped(f"{said['name']}, prompt {said['prompt_id']}") if said else "none"),
        ("words", escaped(words.by)),
        ("plans", _plans(file) or "none"),
        ("files", str(len(incident.snapshot.sources))),
    ]
    return _table(("what", "value"), rows)


def _plans(file: IncidentFile) -> str:
    """Return each plan with the start of its hash, and the range of its audit entries."""
    plans: dict[str, str] = {}
    numbers: list[int] = []
    for entry in file.timeline:
        if entry.source is EntrySource.RECOVERY and "plan" in entry.data:
            plans[str(entry.data["plan"])] = str(entry.data.get("digest", ""))[:12]
            numbers += [int(entry.data["audit"])] if "audit" in entry.data else []
    named = ", ".join(f"{name} {digest}" for name, digest in plans.items())
    return f"{named}; audit entries {min(numbers)} to {max(numbers)}" if numbers else named


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None."
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell or " " for cell in row) + " |" for row in rows]
    return "\n".join(lines)
