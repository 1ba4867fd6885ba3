"""What the words around an error say of it: that a test printed it, or that it was handled and the work went on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rerail.domain.evidence import LogLine, Observation, Role, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.error_lines import first_cry
from rerail.knowledge_base.causality.progress import (
    ends_non_finite,
    gradient_recovered,
    step_rows,
    survived,
)
from rerail.knowledge_base.phrases import phrase_in_bytes, says
from rerail.knowledge_base.rules import Rule
from rerail.log_parsers.view import LogView

_RECORD_LINES = 2  # of a test runner behind the one that counts its tests
_FOLDED = 6  # lines of one message
_TRAINED = 3  # step lines that make a file one of a training, whatever tests it ran
_NEVER_HANDLED = (Tier.SCHEDULER, Tier.HOST, Tier.EXIT)
"""What a kernel, a scheduler or a launcher tells has happened; no program handles it."""
_HARM = (Role.INITIATING, Role.CASCADE, Role.TEARDOWN)
_CRIES = ("cry", "cry-at-the-end")


def only_checks_passed(case: Case) -> bool:
    """Tell whether the logs hold checks of machines that found nothing, and nothing else.

    Whoever prints in a file has a check of its own there, behind the last one stand rows of tables alone, and no line
    calls itself an error.
    """
    passed: dict[str, list[LogLine]] = defaultdict(list)
    for o in case.observations:
        if "check_passed" in o.marks:
            passed[o.line.file].append(o.line)
    return bool(passed) and all(_checks_alone(case, view, passed[view.name]) for view in case.views)


def _checks_alone(case: Case, view: LogView, passed: list[LogLine]) -> bool:
    if not passed or not view.survey.whole:
        return False
    words = (*_CRIES, "device-in-error")
    checked, last = {line.label for line in passed}, max(line.number for line in passed)
    lines = [line for line in map(view.line, view.numbers) if line is not None]
    printed = [line for line in lines if line.message.strip()]
    return (
        all(line.label in checked for line in printed if line.label)
        and all(says("row-of-a-table", line.message) for line in printed if line.number > last)
        and first_cry(case, replace(passed[0], number=0), judged=True, words=words) is None
    )


def told_before_start(case: Case, candidates: Sequence[Observation]) -> list[Observation]:
    """Return what stands above the command that started the job at a shell, where the job trained to its planned end.

    A shell prints what its commands did in their order. Below the command no line may call itself an error.
    """
    found: list[Observation] = []
    for view in case.views:
        above = [o for o in candidates if o.line.file == view.name]
        at = max(case.lines_with(view, "job-started-at-prompt"), default=0)
        if not above or above[-1].line.number > at:
            continue
        trained = _trained(case, view)
        harmed = any(
            o.line.file == view.name and o.line.number > at and o.role in _HARM
            for o in case.observations
        )
        if harmed or sum(line > at for line in trained) < _TRAINED:
            continue
        if not _planned_last(view, trained):
            continue
        if first_cry(case, replace(above[-1].line, number=at), judged=True, words=_CRIES) is None:
            found += above
    return found


def reached_its_end(case: Case) -> bool:
    """Tell whether the last step or epoch that a file tells is the last one that was planned."""
    return any(_planned_last(view, _trained(case, view)) for view in case.views)


def _trained(case: Case, view: LogView) -> set[int]:
    """Return the lines that tell of a step or of an epoch's result."""
    rows = {row.line for row in step_rows(view)}
    return rows | set(case.lines_with(view, "epoch-with-result"))


def _planned_last(view: LogView, trained: set[int]) -> bool:
    return bool(trained) and says("last-of-as-many", view.text(max(trained)) or "")


def test_session(case: Case, record: Observation) -> range:
    """Return the lines of the test runner's session that ends with a record; empty where its start is not told.

    The record must be the last word of its file, and the session must have trained nothing: tests that passed in
    front of a job, or behind it, vouch for nothing of it.
    """
    view, last = case.view(record.line), record.line.number
    behind = any(o.line.file == view.name and o.line.number > last for o in case.observations)
    if behind or view.survey.last_nonempty > last + _RECORD_LINES:
        return range(0)
    kept = view.survey.kept
    begins, shows = phrase_in_bytes("test-session-begins"), phrase_in_bytes("line-of-tests")
    above = [n for n in view.numbers if n <= last]
    told = [n for n in above if begins.search(kept[n])][-1:]
    first = next(iter(told or [n for n in above if shows.search(kept[n])]), None)
    if first is None:
        return range(0)
    lines = range(first, last + 1)
    ended = any(
        o.tier in (Tier.SCHEDULER, Tier.EXIT) and o.role in (*_HARM, Role.CONTEXT) and _in(o, record.line.file, lines)
        for o in case.observations
    )  # fmt: skip
    trained = sum(row.line in lines for row in step_rows(view)) >= _TRAINED
    return range(0) if ended or trained else lines


def only_tests_ran(case: Case, record: Observation) -> bool:
    """Tell whether the evidence is one file, and all harm in it was printed in the session that the record ends."""
    lines = test_session(case, record)
    if not lines or len(case.views) > 1:
        return False
    return all(o.role not in _HARM or _in(o, record.line.file, lines) for o in case.observations)


def _in(observation: Observation, file: str, lines: range) -> bool:
    return observation.line.file == file and observation.line.number in lines


def no_fault_told(
    case: Case,
    rules: dict[str, Rule],
    sessions: Sequence[tuple[str, range]],
    observation: Observation,
) -> str | None:
    """Return why an error that tests printed, a sentence without a traceback, or a gradient tells of no fault, or None.

    `sessions` are the files and lines of test runners' sessions.
    """
    if any(_in(observation, file, lines) for file, lines in sessions):
        return "a test printed it, and all tests passed"
    if _words_below(case, observation):
        return "its own words stand on the lines below it"
    if observation.lines:
        goes_on = _announced_that_it_goes_on(case, observation) and _went_on(case, observation)
        return (
            "the line above its traceback says that the work goes on, as it did"
            if goes_on
            else None
        )
    if (
        observation.leaf == "loss_nan"
        and not ends_non_finite(case)
        and gradient_recovered(case, observation.line)
    ):
        return "its step was skipped: loss and gradients are numbers later"
    if says("text-of-a-sample", observation.line.message):
        return "it stands in a text that is shown"
    rule = rules.get(observation.rule_id)
    # A rule that counts lines knows that many of them are a fault, however each was handled.
    if rule is not None and rule.min_count > 1:
        return None
    if says("handled-in-words", observation.line.message) and _went_on(case, observation):
        return "its own sentence says how it was handled, and the work went on"
    if _died_of_another(case, observation):
        return "it is told as less than an error, and its process ended with another"
    return None


def _died_of_another(case: Case, observation: Observation) -> bool:
    """Tell whether a process told an error as less than one, and later raised another.

    Who quotes an exception has caught it; a plain sentence may be the reason of what Python raises behind it.
    """
    line = observation.line
    if observation.tier not in (Tier.APPLICATION, Tier.GENERIC):
        return False
    if not any(says(words, line.message) for words in ("below-an-error", "handled-in-words")):
        return False
    caught = says("claimed-exception", line.message)
    return any(
        o.lines
        and o.role is Role.INITIATING
        and (caught or o.tier is not Tier.GENERIC)
        and o.leaf != observation.leaf
        and o.line.file == line.file
        and o.line.number > line.number
        and line.rank in (None, o.line.rank)
        for o in case.observations
    )


def _words_below(case: Case, observation: Observation) -> bool:
    """Tell whether an exception's message is folded onto the next lines, where a rule knows it (rich, at 80 columns)."""
    line = observation.line
    if observation.tier is not Tier.GENERIC or not says("exception-without-words", line.message):
        return False
    return any(
        o.role in _HARM
        and o.tier is not Tier.GENERIC
        and (o.line.file, o.line.label) == (line.file, line.label)
        and 0 < o.line.number - line.number <= _FOLDED
        for o in case.observations
    )


def _announced_that_it_goes_on(case: Case, observation: Observation) -> bool:
    """Tell whether a program's logger shows a traceback beneath a sentence that says what is done instead."""
    line = case.view(observation.line).line(observation.lines[0].number - 1)
    if line is None or line.rank not in (None, observation.line.rank):
        return False
    return says("says-that-it-goes-on", line.message)


def _went_on(case: Case, observation: Observation) -> bool:
    """Tell whether the work went on behind a sentence: steps, or a start of the training that no cry follows.

    The last words of a log went on to nothing.
    """
    if observation.tier in _NEVER_HANDLED:
        return False
    if survived(case, observation):
        return True
    line = observation.line
    view, told = case.view(line), phrase_in_bytes("work-goes-on")
    if first_cry(case, line, words=_CRIES) is not None:
        return False
    later = view.between(line.number + 1, view.numbers[-1])
    found = [
        one for n in later if told.search(view.survey.kept[n]) and (one := view.line(n)) is not None
    ]
    found += [
        o.line
        for o in case.observations
        if o.role is Role.SUCCESS and o.line.file == line.file and o.line.number > line.number
    ]
    return any(line.rank is None or one.rank == line.rank for one in found) and not any(
        o.role in _HARM and o.line.file == line.file and o.line.number > line.number
        for o in case.observations
    )
