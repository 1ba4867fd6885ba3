"""`rerail postmortem`: a draft from the record, as Markdown or one HTML file; edits are never lost."""

from __future__ import annotations

import sys
from pathlib import Path

from rerail.assistant.agent.endpoint import configured
from rerail.assistant.explained import facts_for
from rerail.assistant.postmortem.document import Document, Words
from rerail.assistant.postmortem.draft import draft
from rerail.assistant.postmortem.kept import keep_draft
from rerail.assistant.postmortem.merge import merge, render
from rerail.assistant.postmortem.review import review
from rerail.assistant.postmortem.rule_words import rule_words
from rerail.assistant.response import load_whole
from rerail.errors import RecoveryError, UsageError
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.incidents import IncidentFile, list_incidents
from rerail.knowledge_base.store.opened import opened_store
from rerail.recovery.safe_files import open_regular, read_whole, write_file
from rerail.settings import load_settings

MOST_DRAFT_BYTES = 64 << 20


def postmortem_command(
    incidents: list[str],
    *,
    output: Path | None,
    since: str | None,
    job: str | None,
    no_model: bool,
) -> int:
    """Write the post-mortem of one incident, or the review of several."""
    if not incidents and since is None:
        raise UsageError(
            "no incident was named",
            hint="rerail postmortem INC-..., or rerail postmortem --since 7d",
        )
    with opened_store() as engine:
        with reading(engine) as connection:
            if since is None:
                files = [load_whole(connection, name) for name in incidents]
            else:
                start = _start(since)
                rows = list_incidents(connection, since=start, job=job, limit=1000)
                files = [load_whole(connection, row.id) for row in reversed(rows)]
        document = _document(files, since=since, job=job, no_model=no_model)
        subject = files[0].row.id if len(files) == 1 and since is None else document.title
        text = _write(document, output)
        with writing(engine) as connection:
            keep_draft(connection, subject, text, document.words_digest)
    return 0


def _start(since: str) -> str:
    from rerail.assistant.since import since_iso

    return since_iso(since)


def _document(
    files: list[IncidentFile], *, since: str | None, job: str | None, no_model: bool
) -> Document:
    if not files:
        raise UsageError("no incident is in this period", hint="rerail incidents")
    if len(files) == 1 and since is None:
        return draft(files[0], _words(files[0], no_model=no_model))
    ordered = sorted(files, key=lambda f: f.row.time)
    begin = _start(since) if since is not None else ordered[0].row.time
    end = now_iso() if since is not None else ordered[-1].row.time
    return review(ordered, since=begin, until=end, about=f"job {job}" if job else "all jobs")


def _words(file: IncidentFile, *, no_model: bool) -> Words:
    fallback = rule_words(file)
    settings = load_settings()
    if no_model or not configured(settings):
        return fallback
    from rerail.assistant.postmortem.model_words import model_words

    words = model_words(facts_for(file.incident), settings, fallback)
    if words.banner:
        print(f"rerail: {words.banner}", file=sys.stderr)
    return words


def _write(document: Document, output: Path | None) -> str:
    """Write the draft; return its Markdown."""
    if output is None:
        text = render(document)
        sys.stdout.write(text)
        return text
    page = output.suffix.lower() in (".html", ".htm")
    source = output.with_suffix(".md") if page else output
    folder = source.parent
    links = "".join(f"\n\n![{name}]({source.stem}-{name}.svg)" for name, _ in document.charts)
    old = _read(source)
    if old is None:
        text = render(document, links)
    else:
        merged = merge(document, old, links)
        text = merged.text
        if merged.kept:
            print(f"kept as edited: {', '.join(merged.kept)}", file=sys.stderr)
        if merged.changed_below:
            print(f"newer facts added below: {', '.join(merged.changed_below)}", file=sys.stderr)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, svg in document.charts:
            write_file(folder / f"{source.stem}-{name}.svg", (svg + "\n").encode())
        write_file(source, text.encode())
        if page:
            from rerail.assistant.postmortem.page import page as to_page

            write_file(output, to_page(text, document.charts).encode())
    except OSError as error:
        raise UsageError(
            f"-o {output}: {error.strerror}",
            subject=str(output),
            hint="name a file that can be written",
        ) from None
    written = f"{output} and {source}" if page else str(output)
    print(f"{document.title}\nwritten to {written}")
    return text


def _read(path: Path) -> str | None:
    try:
        return read_whole(open_regular(path), MOST_DRAFT_BYTES).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, RecoveryError) as error:
        raise UsageError(
            f"{path}: {error}", subject=str(path), hint="give another file with -o"
        ) from None
