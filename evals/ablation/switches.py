"""The parts that can be switched off, each by replacing one object for a while.

Parts are found where they are listed: sources of places, statements, headings, labels, wordings and
questions of waiting, the steps of the verdict, the edges of the graph of evidence, files of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any
from unittest.mock import patch

from rerail.assistant import pipeline
from rerail.knowledge_base import statements
from rerail.knowledge_base.causality import diagnosis_record, exits, numeric, roots, select, verdict
from rerail.knowledge_base.matcher import MatchResult, RuleSet, match
from rerail.knowledge_base.placement import (
    everywhere,
    headings,
    node_sources,
    own_words,
    rank_sources,
    who_is_who,
    witnesses,
)
from rerail.knowledge_base.waiting import conclude, engine, read
from rerail.log_parsers import induced_labels, labels, sections
from rerail.log_parsers.view import LogView


@dataclass(frozen=True, slots=True)
class Switch:
    """One part; `off` holds it switched off."""

    kind: str
    name: str
    off: Callable[[], Any]
    always: bool = False
    """Whether every case is judged anew: of this part it is not known where it had a say."""
    reads: bool = False
    """Whether the lines are read anew under it."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


_STEPS = ("_completed", "_initiating", "_stacks", "_timeouts", "_peers", "_waited", "_died", "_stopped",
          "_numbers", "_reported", "killed_before", "_hung_before", "_victims_exception", "_asked_once",
          "_silent")  # fmt: skip
_QUESTIONS = ("_named", "_other_tensors", "_different_calls", "_one_in_another_call", "_apart", "_ahead_in_one_group",
              "_behind", "_absent")  # fmt: skip


_LISTS = (
    (rank_sources, "SOURCES", "rank source"),
    (node_sources, "SOURCES", "node source"),
    (node_sources, "ACCUSED", "node source"),
)


def switches() -> list[Switch]:
    """Return all parts that can be switched off."""
    found: list[Switch] = []
    for module, attribute, kind in _LISTS:
        sources = getattr(module, attribute)
        for source in sources:
            left = tuple(one for one in sources if one is not source)
            found.append(Switch(kind, _name(source), partial(_replaced, (module, attribute, left))))
    for step in _STEPS:
        found.append(Switch("step", step.lstrip("_"), partial(_replaced, (verdict, step, _never))))
    for question in _QUESTIONS:
        found.append(
            Switch("question", question[1:], partial(_replaced, (engine, question, _nothing)))
        )
    side = partial(_replaced, (conclude, "from_side_thread", _nothing))
    found.append(Switch("question", "side_thread", side))
    for name, module, attribute, instead in (
        ("copy of an exception", roots, "_copy_of", _nothing),
        ("link of a chain", roots, "_without_unknown_links", lambda candidates, edges: candidates),
        ("vendor's order of Xids", roots, "_heavier", _nothing),
        ("the line that says more", roots, "_fuller", _nothing),
        ("training went on", select, "_outlived", _never),
        ("own claim outweighed", select, "outweighed", lambda case, candidates: []),
        ("success given the lie", select, "_belies", _never),
        ("hints without slowness", select, "_drop_hints", _nothing),
        ("node beside the job", verdict, "foreign", lambda case, identities: frozenset()),
        ("cry behind the last step", verdict, "first_cry", _nothing),
        ("every start fails on a node", verdict, "starts_failed_on", lambda *a: 0),
        ("who stopped first", verdict, "left_behind", _nothing),
        ("the host that stopped first", verdict, "lost_with_host", _nothing),
        ("an abort before all time-outs", exits, "ended_before_waits", _nothing),
        ("two that accuse each other", witnesses, "accuse_each_other", _never),
        ("an address of nobody", witnesses, "two_strangers", _never),
        ("told above the start", select, "told_before_start", lambda case, candidates: []),
        ("training behind a success", select, "_trains_behind", _never),
        ("one dump", witnesses, "_of_one_dump", lambda same, winner: same),
        ("quoted again", witnesses, "_quotes", _never),
        ("who stopped first of those that waited", conclude, "left_behind", _nothing),
        ("busy like another rank", conclude, "_of_several", _never),
        ("raised from it", rank_sources, "raised_from_it", _never),
        ("a local rank that is the rank", rank_sources, "local_that_is_rank", _nothing),
        ("lost in a barrier", witnesses, "left_the_barrier", _nothing),
        ("ranks counted anew on each host", who_is_who, "_counted_anew", _never),
        ("who tells of others", diagnosis_record, "_names_others", _never),
        ("its own word beside another's", roots, "_own_word", _nothing),
        ("a process that the job names", roots, "_without_other_kills", lambda c, all_, e: all_),
        ("a rank that is late in every round", numeric, "late_rank", _nothing),
        ("steps behind a plan", numeric, "behind_plan", _nothing),
        ("step times that rose", select, "rose", _never),
        ("a run that stood still", verdict, "stood_still", _nothing),
        ("each names another", rank_sources, "_each_names_another", _never),
        ("ranks of a host in blocks", exits, "rank_in_block", _nothing),
        ("devices of processes", exits, "devices_of_processes", lambda case: {}),
        ("either may be first", everywhere, "_either_may_be_first", _never),
        ("when an exit was told", exits, "_told_at", _nothing),
        ("numbers that fill the world", induced_labels, "_fills_the_world", lambda *a: {}),
        ("one pod in front of all lines", induced_labels, "_one_pod", _nothing),
        ("headings of a shell's loop", sections, "looped", lambda command: {}),
        ("a controller's word", diagnosis_record, "_by_a_controller", _never),
    ):
        off = partial(_replaced, (module, attribute, instead))
        reads = module in (induced_labels, sections)
        found.append(Switch("edge", name, off, always=True, reads=reads))
    found += _data()
    families = sorted({rule.file for rule in pipeline.rules().rules if rule.file})
    return found + [Switch("rules", name, partial(_without_rules, name)) for name in families]


def _data() -> list[Switch]:
    """Return the parts that are data: each form of each kind."""
    found = [
        Switch("statement", form.id, partial(_without_statement, form.id))
        for form in statements.all_forms()
    ]
    for kind, module, attribute, caches in (
        ("heading", headings, "headings", ()),
        ("wording", read, "forms", ("_any_of_them",)),
        ("label", labels, "labels", ("_by_first",)),
    ):
        every: Sequence[Any] = getattr(module, attribute)()
        for one in every:
            left = tuple(other for other in every if other is not one)
            off = partial(_replaced, (module, attribute, lambda left=left: left), caches)
            found.append(Switch(kind, one.id, off, reads=kind == "label"))
    return found


@contextmanager
def noted() -> Iterator[set[str]]:
    """Yield a set that takes the names of the parts which have a say while the block runs."""
    said: set[str] = set()
    with ExitStack() as stack:

        def note(owner: Any, attribute: str, names: Callable[[Any, Any], Iterable[str]]) -> None:
            real = getattr(owner, attribute)

            @wraps(real)
            def asked(*args: Any, **keys: Any) -> Any:
                answer = real(*args, **keys)
                if answer is not None and answer is not False:
                    said.update(names(args, answer))
                return answer

            stack.enter_context(patch.object(owner, attribute, asked))

        def listed(module: Any, attribute: str, kind: str) -> None:
            heard = tuple(
                _heard(one, f"{kind} {_name(one)}", said) for one in getattr(module, attribute)
            )
            stack.enter_context(patch.object(module, attribute, heard))

        for module, attribute, kind in _LISTS:
            listed(module, attribute, kind)
        for owner, attributes, kind in (
            (verdict, _STEPS, "step"),
            (engine, _QUESTIONS, "question"),
        ):
            for attribute in attributes:
                note(owner, attribute, partial(_always, f"{kind} {attribute.lstrip('_')}"))
        note(conclude, "from_side_thread", partial(_always, "question side_thread"))
        note(headings, "_look", lambda args, answer: [f"heading {args[0].id}"])
        note(read.Form, "slots", lambda args, answer: [f"wording {args[0].id}"])
        note(labels.Label, "match", lambda args, answer: [f"label {args[0].id}"])
        note(statements, "_filled", lambda args, answer: _forms_with(args[0].re.pattern))
        note(pipeline, "match", lambda args, answer: _families(answer))
        yield said


@cache
def _forms_with(pattern: str) -> tuple[str, ...]:
    forms = statements.all_forms()
    return tuple(
        f"statement {one.id}" for one in forms if pattern in {p.pattern for p in one.patterns}
    )


def _families(found: MatchResult) -> set[str]:
    of_rule = {rule.id: rule.file for rule in pipeline.rules().rules}
    return {f"rules {of_rule[one.rule_id]}" for one in found.observations if one.rule_id in of_rule}


def _name(source: Callable[..., Any]) -> str:
    return source.__name__.strip("_")


def _heard(source: Callable[..., Any], name: str, said: set[str]) -> Callable[..., Any]:
    """Return a source that notes its name when it has an answer."""

    @wraps(source)
    def asked(*args: Any, **keys: Any) -> Any:
        answer = source(*args, **keys)
        if answer is not None:
            said.add(name)
        return answer

    return asked


def _always(name: str, *_: object) -> list[str]:
    return [name]


def _never(*_: object, **__: object) -> bool:
    return False


def _nothing(*_: object, **__: object) -> None:
    return None


@contextmanager
def _replaced(what: tuple[Any, str, Any], caches: Sequence[str] = ()) -> Iterator[None]:
    module, attribute, instead = what
    clear = [getattr(module, name).cache_clear for name in caches]
    with patch.object(module, attribute, instead):
        for one in clear:
            one()
        try:
            yield
        finally:
            for one in clear:
                one()


@contextmanager
def _without_statement(name: str) -> Iterator[None]:
    left = tuple(form for form in statements.all_forms() if form.id != name)
    caches = (statements.forms.cache_clear, own_words._forms.cache_clear)
    with ExitStack() as stack:
        for module in (statements, own_words):
            stack.enter_context(patch.object(module, "all_forms", lambda: left))
        for one in caches:
            one()
            stack.callback(one)
        yield
    for one in caches:
        one()


@contextmanager
def _without_rules(family: str) -> Iterator[None]:
    of_family = {rule.id for rule in pipeline.rules().rules if rule.file == family}

    def without(views: Sequence[LogView], rules: RuleSet) -> MatchResult:
        found = match(views, rules)
        found.observations = [o for o in found.observations if o.rule_id not in of_family]
        return found

    with patch.object(pipeline, "match", without):
        yield
