"""`rerail kb propose` and `rerail kb review`: rules learned from confirmed incidents."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from sqlalchemy import Connection

from rerail.assistant.learn import propose_filters, propose_rule
from rerail.assistant.regression_case import write_case
from rerail.assistant.stored import who
from rerail.errors import UsageError
from rerail.knowledge_base.learning.candidate import LEAST_SUPPORT, State
from rerail.knowledge_base.learning.learned import remove_rule, write_rule
from rerail.knowledge_base.learning.shelf import Shelved, decide, shelved
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.incidents import load
from rerail.knowledge_base.store.opened import opened_store
from rerail.settings import load_settings


def propose_command(incident: str, *, filters: bool, no_model: bool) -> int:
    """Propose a rule from a confirmed incident, or filters from routine lines."""
    settings = load_settings()
    if no_model:
        settings = settings.model_copy(update={"model": ""})
    with opened_store() as engine:
        if filters:
            found = propose_filters(engine, settings)
            good = [(p.candidate, p.agreed) for p in found if p.candidate is not None]
            for banner in dict.fromkeys(p.banner for p in found if p.banner):
                print(f"rerail: {banner}", file=sys.stderr)
            print(f"{len(good)} filters proposed, {len(found) - len(good)} refused")
            for candidate, agreed in good:
                print(f"  {candidate.pattern}")
                print(f"    made by {candidate.by}" + (f", {agreed}" if agreed else ""))
            return 0
        with reading(engine) as connection:
            file = load(connection, incident)
        proposal = propose_rule(engine, file, settings)
    if proposal.banner:
        print(f"rerail: {proposal.banner}", file=sys.stderr)
    if proposal.candidate is None:
        print("no rule is proposed:")
        for complaint in proposal.complaints:
            print(f"  {complaint}")
        return 1
    candidate = proposal.candidate
    print(f"{candidate.id} runs in the shadow from now on")
    print(f"  {candidate.leaf}: {candidate.pattern}")
    print(f"  made by {candidate.by}" + (f", {proposal.agreed}" if proposal.agreed else ""))
    print(f"  after {LEAST_SUPPORT} incidents for it and none against: rerail kb review")
    return 0


def review_command(
    name: str | None, *, accept: bool, reject: bool, force: bool, by: str | None
) -> int:
    """List the candidates, or decide on one."""
    if accept and reject:
        raise UsageError("--accept and --reject", hint="give one of them")
    with opened_store() as engine:
        if name is None:
            with reading(engine) as connection:
                _print(shelved(connection))
            return 0
        if not (accept or reject):
            with reading(engine) as connection:
                found = [s for s in shelved(connection) if s.candidate.id == name]
            if not found:
                raise UsageError(
                    f"no candidate is called {name!r}", subject=name, hint="rerail kb review"
                )
            _print_one(found[0])
            return 0
        person = who(by)
        path = case = None
        with writing(engine) as connection:
            one = decide(connection, name, accept=accept, by=person, force=force)
            # In the transaction: a rule that cannot be written is not accepted.
            if accept:
                path = write_rule(one, person)
                case = _case_of(connection, one)
            elif one.state is State.ACCEPTED:
                path = remove_rule(one.candidate)
    if accept:
        print(f"{name}: accepted, in force from now on ({path})")
        print("run its examples: rerail kb test " + name)
        if case is not None:
            print(f"its regression case is in {case}; run them: rerail eval cases {case}")
    elif one.state is State.ACCEPTED:
        print(f"{name}: rejected, no longer in force ({path})")
    else:
        print(f"{name}: rejected")
    return 0


def _case_of(connection: Connection, one: Shelved) -> Path | None:
    """Write the regression case of the incident that a rule was learned from."""
    if one.candidate.kind == "filter":
        return None
    try:
        return write_case(load(connection, one.candidate.incident))
    except UsageError:  # the candidate came from another site's store
        return None


def _print(found: list[Shelved]) -> None:
    if not found:
        print("no candidate yet; rerail kb propose INCIDENT makes one from a confirmed incident")
        return
    table = Table("candidate", "kind", "state", "for", "against", "by", "pattern", box=None)
    for one in found:
        candidate = one.candidate
        state = "READY" if one.state is State.SHADOW and one.ready else str(one.state)
        if one.state is State.ACCEPTED and one.against:
            state = "accepted, IN DOUBT"
        table.add_row(
            candidate.id,
            candidate.kind,
            state,
            str(len(one.support)),
            str(len(one.against)),
            Text(candidate.by),
            Text(candidate.pattern[:80]),
        )
    Console(width=None if sys.stdout.isatty() else 170, soft_wrap=True, highlight=False).print(
        table
    )


def _print_one(one: Shelved) -> None:
    candidate = one.candidate
    out = Console(width=None if sys.stdout.isatty() else 150, soft_wrap=True, highlight=False)
    rows = [
        ("candidate", candidate.id),
        ("state", str(one.state)),
        ("type", candidate.leaf or "routine lines"),
        ("pattern", candidate.pattern),
        ("made by", f"{candidate.by}, from {candidate.incident}"),
        ("for", ", ".join(one.support) or "none"),
        ("against", ", ".join(one.against) or "none"),
        *(("line", text) for text in candidate.positives),
    ]
    for label, value in rows:
        out.print(Text(f"{label:<10}{value}"))
