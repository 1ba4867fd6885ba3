"""A person's word on a verdict: noted, and what follows from it for sign-offs and learned rules."""

from __future__ import annotations

from rerail.assistant.learn import with_true_line
from rerail.assistant.named_line import named_line
from rerail.assistant.regression_case import remove_case
from rerail.domain.incident import Confirmation
from rerail.errors import UsageError
from rerail.knowledge_base.learning.candidate import State
from rerail.knowledge_base.learning.shelf import observe, shelved
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.engine import writing
from rerail.knowledge_base.store.incidents import find_id, load
from rerail.knowledge_base.store.judgement import confirm
from rerail.knowledge_base.store.opened import opened_store
from rerail.knowledge_base.taxonomy import NO_FAILURE


def give_feedback(
    name: str,
    *,
    verdict: str,
    failure_type: str | None,
    first_fault: str | None,
    note: str,
    by: str,
) -> list[str]:
    """Write down whether the verdict was right; return the sentences that tell what follows.

    Raises:
        UsageError: The word contradicts itself, or the incident or line does not exist.
        StoreError: It cannot be written.
    """
    if verdict == "wrong" and failure_type is None and not note:
        raise UsageError(
            "a wrong verdict needs the true one",
            subject=name,
            hint="--type TYPE, or --note with what is known",
        )
    with opened_store() as engine, writing(engine) as connection:
        found = find_id(connection, name)
        said = load(connection, found).row.failure_type
        if verdict == "right" and failure_type not in (None, said):
            raise UsageError(
                f"the verdict was {said or 'none'}: it is not right where the true type is {failure_type}",
                subject=found,
                hint=f"rerail confirm {found} --verdict wrong --type {failure_type}",
            )
        line = None
        if first_fault is not None:
            line = named_line(load(connection, found).incident, first_fault)
            first_fault = f"{line.file}:{line.number}"
        word = Confirmation.model_validate(
            {
                "verdict": verdict,
                "by": by,
                "time": now_iso(),
                "failure_type": failure_type,
                "first_fault": first_fault,
                "line": line,
                "note": note,
            }
        )
        before = load(connection, found).row.true_type
        lapsed = confirm(connection, found, word)
        if lapsed or load(connection, found).row.true_type != before:
            # In the transaction: a case that cannot be taken out leaves the sign-off as it was.
            remove_case(found)
        file = load(connection, found)
        shadow = observe(connection, with_true_line(file), file.row.true_type)
        doubted = [r for r in shelved(connection, State.ACCEPTED) if found in r.against]
    told = [f"{found}: noted, the verdict is {verdict}"]
    if line is not None:
        told.append(f"the first fault is {line.file}:{line.number}  {line.text[:120]}")
    if lapsed:
        told.append("its sign-off is no longer in force, and its regression case is out;")
        told.append(f"read it again, then: rerail signoff {found}")
    told += [
        f"it speaks against the accepted rule {one.candidate.id}: rerail kb review; --reject"
        for one in doubted
    ]
    told += [f"candidate {rule} matched it; rerail kb review {rule}" for rule in shadow]
    if (
        file.row.true_type is not None
        and file.row.true_type not in (file.row.failure_type, NO_FAILURE)
        and not shadow
    ):
        told.append(f"no rule knew it: rerail kb propose {found}")
    return told
