"""Puts a verdict into the words and records that people and programs read."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

from rerail.domain.diagnosis import (
    Action,
    Attempt,
    Consequence,
    Diagnosis,
    Evidence,
    FirstFault,
    GpuRef,
    Missing,
    Outcome,
    Reason,
    Recovery,
    Relation,
    RuledOut,
    Status,
    Suspects,
    Targets,
)  # fmt: skip
from rerail.domain.evidence import Blames, LogLine, Observation, Role
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.cost import cost_of
from rerail.knowledge_base.causality.end_of_log import laggards, stop
from rerail.knowledge_base.causality.missing import missing
from rerail.knowledge_base.causality.verdict import Verdict
from rerail.knowledge_base.headline.sentence import Where, headline
from rerail.knowledge_base.phrases import says
from rerail.knowledge_base.placement.names import same_host, short
from rerail.knowledge_base.placement.one_node import node_of_all_ranks
from rerail.knowledge_base.taxonomy import NO_FAILURE, has, leaves
from rerail.knowledge_base.waiting.engine import How
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_local
from rerail.log_parsers.tracebacks import is_marker

MAX_TEXT = 600
_LONGEST_FIELD, _LONGEST_LINE = 80, 160
_BLANK = lazy(r"\{(\w+)\}")


def to_diagnosis(case: Case, verdict: Verdict, *, elapsed_s: float = 0.0) -> Diagnosis:
    """Return the diagnosis that contracts.md describes."""
    leaf = leaves().get(verdict.leaf or "")
    suspects, first = _suspects(verdict), _first_fault(case, verdict)
    said = _headline(case, verdict, Where(first, suspects))
    cited = _Citations(case)
    ruled_out = _evidence(case, verdict, cited)
    place, relations = _place(verdict, cited), _relations(verdict, cited)
    return Diagnosis(
        outcome=verdict.outcome,
        status=verdict.status,
        failure_type=verdict.leaf,
        category=leaf.category if leaf else (NO_FAILURE if verdict.leaf == NO_FAILURE else None),
        layer=leaf.layer if leaf and verdict.outcome is Outcome.FAILURE else None,
        headline=said,
        summary=_summary(case, verdict, said),
        first_fault=first,
        suspects=suspects,
        evidence=cited.items,
        consequences=_consequences(case, verdict),
        ruled_out=ruled_out,
        place=place,
        relations=relations,
        missing=[Missing(what=m.what, how_to_get=m.how_to_get) for m in missing(case, verdict)],
        recovery=_recovery(verdict, suspects),
        cost=cost_of(case, verdict),
        attempts=_attempts(case, verdict),
        progress=_progress(verdict),
        elapsed_s=round(elapsed_s, 3),
    )


def iso(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601 in UTC."""
    if seconds is None or not 0 <= seconds < 4e9:
        return None
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _first_fault(case: Case, verdict: Verdict) -> FirstFault | None:
    if verdict.line is None or (
        verdict.outcome is Outcome.NO_FAILURE and verdict.leaf == NO_FAILURE
    ):
        return None
    line = verdict.line
    # Who tells of a node that is not its own tells no rank of it.
    own = verdict.identities.node_of(line)
    elsewhere = (
        len(verdict.nodes) == 1 and own is not None and short(own) != short(verdict.nodes[0])
    )
    told = None if elsewhere or verdict.nobody or _names_others(verdict) else line.rank
    node = _node_of_fault(case, verdict, line) or node_of_all_ranks(verdict.identities)
    if _only_life(case, verdict, line) or _only_waited(case, verdict, line):
        # Of a job on one host that is known all the same.
        told, node = None, node if len(verdict.identities.nodes_seen) < 2 else None
    file, number = line.lies
    return FirstFault(
        file=file,
        line=number,
        text=line.whole[:MAX_TEXT],
        time=iso(case.time(line)),
        rank=verdict.ranks[0] if len(verdict.ranks) == 1 else told,
        node=node,
        gpu=verdict.gpu,
        rule=verdict.observation.rule_id if verdict.observation else None,
    )


def _only_life(case: Case, verdict: Verdict, line: LogLine) -> bool:
    """Tell whether the line of an open verdict is a step: who printed it is not where the fault was."""
    accused = verdict.ranks or verdict.nodes or verdict.observation is not None
    if verdict.outcome is not Outcome.INCONCLUSIVE or accused:
        return False
    return any(row.line == line.number for row in case.view(line).survey.steps)


def _only_waited(case: Case, verdict: Verdict, line: LogLine) -> bool:
    """Tell whether the line of a verdict that is not proven and accuses nobody is of one that waited, or lost another."""
    if verdict.status is not Status.HYPOTHESIS or verdict.ranks or verdict.nodes:
        return False
    told = [o for o in case.observations if o.line == line]
    return bool(told) and all(o.role is Role.CASCADE and o.blames is Blames.PEER for o in told)


def _by_a_controller(case: Case, verdict: Verdict, line: LogLine) -> bool:
    """Tell whether who prints how something ended tells of what ran elsewhere."""
    return verdict.observation is None and any(
        told.blames is Blames.NOBODY and told.line == line for told in case.observations
    )


def _names_others(verdict: Verdict) -> bool:
    """Tell whether a conclusion names other ranks, or a host that nothing ties to whoever prints its line."""
    line = verdict.line
    if line is None or verdict.observation is not None:
        return False
    if verdict.ranks:
        return line.rank not in verdict.ranks
    there = verdict.identities.undisputed(line.rank) if line.rank is not None else None
    own = verdict.identities.node_in_front(line) or there
    return bool(verdict.nodes) and not any(same_host(own, node) for node in verdict.nodes)


def _node_of_fault(case: Case, verdict: Verdict, line: LogLine) -> str | None:
    """The accused node; else that of the line, unless the rank that is named is not the line's own."""
    if len(verdict.nodes) == 1:
        return verdict.nodes[0]
    ranks = verdict.ranks
    if not verdict.nodes and (verdict.nobody or _by_a_controller(case, verdict, line)):
        return None
    of_another = line.rank not in (None, *ranks) or (line.rank is None and line.node is None)
    named = verdict.waiting.by(How.NAMED) if verdict.waiting is not None else None
    # Who lists those that did not come is not one of them.
    of_another = of_another or (named is not None and named.line == line and line.rank is None)
    silent = verdict.waiting.silent if verdict.waiting is not None else ()
    if line.rank is None and set(ranks) <= set(silent) and says("waited-in-vain", line.text):
        of_another = True  # nor is who says that it waited one of those that said nothing
    if ranks and of_another:
        # The host of who tells of others is not theirs.
        return verdict.identities.undisputed(ranks[0]) if len(ranks) == 1 else None
    node = verdict.identities.node_in_front(line)
    if (node is None or is_local(node)) and line.rank is not None:
        return verdict.identities.undisputed(line.rank)
    return None if is_local(node) or says("pod-of-the-cluster", node or "") else node


def _suspects(verdict: Verdict) -> Suspects:
    if verdict.outcome is not Outcome.FAILURE:
        return Suspects()
    nodes = verdict.nodes if has(verdict.leaf, "blames_node") else []
    gpus = []
    node = nodes[0] if nodes else None
    if verdict.pci:
        gpus.append(GpuRef(node=node, gpu=verdict.pci))
    if verdict.gpu is not None:
        gpus.append(GpuRef(node=node, gpu=verdict.gpu))
    return Suspects(ranks=verdict.ranks, nodes=nodes, gpus=gpus)


def _headline(case: Case, verdict: Verdict, where: Where) -> str:
    leaf = leaves().get(verdict.leaf or "")
    if verdict.outcome is Outcome.NO_FAILURE:
        if leaf is not None:
            return "No failure of the run: it completed, then its teardown failed"
        return f"No failure found: {verdict.why}"
    if leaf is None:
        return f"No verdict: {verdict.why}"
    return headline(case, verdict, where)


def _summary(case: Case, verdict: Verdict, said: str) -> str:
    """The headline, and behind it what is known of the cause."""
    text = said.rstrip(".") + "."
    if verdict.outcome is not Outcome.FAILURE or verdict.leaf not in leaves():
        if verdict.moving and verdict.last is not None:
            return f"{text} The log ends at {stop(verdict.last)}. {laggards(verdict.late)}".strip()
        return f"{text} {_last(verdict)}".strip()
    detail = verdict.why or _note(verdict)
    if detail:
        text += f" {detail[0].upper()}{detail[1:]}".rstrip(".") + "."
    others = case.with_role(Role.CASCADE)
    cascade = max(len(others), case.facts.count({o.rule_id for o in others}))
    if cascade:
        lines = (
            "line of another rank or layer is a consequence"
            if cascade == 1
            else "lines of other ranks or layers are consequences"
        )
        text += f" {cascade} further {lines}."
    return text


def _note(verdict: Verdict) -> str:
    """The rule's note with what the line named; none where the line lacks one of its fields."""
    if verdict.rule is None:
        return ""
    fields = verdict.observation.fields if verdict.observation else {}
    if any(not fields.get(name) for name in _BLANK.findall(verdict.rule.note)):
        return ""
    return _BLANK.sub(
        lambda blank: fields[blank[1]].strip(" .")[:_LONGEST_FIELD], verdict.rule.note
    )


def _last(verdict: Verdict) -> str:
    if verdict.last is None or verdict.last.step is None:
        return ""
    return f"Last step seen: {verdict.last.step}."


class _Citations:
    """Numbers the cited lines E1, E2, ... and cites no line twice."""

    def __init__(self, case: Case) -> None:
        self.items: list[Evidence] = []
        self._case = case
        self._names: dict[tuple[str, int], str] = {}

    def cite(self, line: LogLine, role: str, rule: str | None) -> str:
        """Cite a line and return its name."""
        key = line.lies
        if key not in self._names:
            self._names[key] = f"E{len(self.items) + 1}"
            self.items.append(
                Evidence.model_validate(
                    {
                        "id": self._names[key],
                        "file": key[0],
                        "line": key[1],
                        "text": line.whole[:MAX_TEXT],
                        "role": role,
                        "time": iso(self._case.time(line)),
                        "rank": line.rank,
                        "node": line.node,
                        "rule": rule,
                    }
                )
            )
        return self._names[key]

    def name_of(self, line: LogLine) -> str | None:
        """Return the name of a line that is cited, or None."""
        return self._names.get(line.lies)


def _evidence(case: Case, verdict: Verdict, cited: _Citations) -> list[RuledOut]:
    if verdict.outcome is Outcome.NO_FAILURE:
        if verdict.observation is not None:
            cited.cite(verdict.observation.line, "context", verdict.observation.rule_id)
        if verdict.line is not None:
            cited.cite(verdict.line, "teardown", None)
    else:
        _cite_cause(case, verdict, cited)
        for line in verdict.beside:
            cited.cite(line, "context", None)
    shown: set[str] = set()
    for role in (Role.CASCADE, Role.TEARDOWN):
        for observation in case.with_role(role):
            if observation.rule_id not in shown and len(shown) < 8:
                shown.add(observation.rule_id)
                cited.cite(observation.line, str(role), observation.rule_id)
    if verdict.last is not None and verdict.outcome is not Outcome.NO_FAILURE:
        cited.cite(verdict.last.line, "context", None)
    return _ruled_out(verdict, cited)


def _place(verdict: Verdict, cited: _Citations) -> list[Reason]:
    """Why the fault is placed where it is; the lines that tell it are cited as well."""
    if verdict.outcome is not Outcome.FAILURE:
        return []
    found = []
    for reason in verdict.reasons:
        name = cited.cite(reason.line, "context", None) if reason.line is not None else None
        found.append(Reason(what=reason.what, because=reason.because, evidence=name))
    return found


def _relations(verdict: Verdict, cited: _Citations) -> list[Relation]:
    """What explains what, as far as both ends are cited, the first fault's own consequences last."""
    if verdict.outcome is not Outcome.FAILURE or verdict.line is None:
        return []
    found = [
        Relation(cause=cause, effect=effect, because=edge.because)
        for edge in verdict.selection.edges
        if (cause := cited.name_of(edge.cause.line)) is not None
        and (effect := cited.name_of(edge.effect.line)) is not None
        and cause != effect
    ]
    first = cited.name_of(verdict.line)
    explained = {relation.effect for relation in found}
    for item in cited.items:
        if first is not None and item.role in ("cascade", "teardown") and item.id not in explained:
            words = "the end of the job" if item.role == "teardown" else "what it did to others"
            found.append(Relation(cause=first, effect=item.id, because=words))
    return found


def _cite_cause(case: Case, verdict: Verdict, cited: _Citations) -> None:
    """Cite the first fault, its traceback, its repetitions, the dumps and the first time-out."""
    found = verdict.observation
    if verdict.line is not None:
        cited.cite(verdict.line, "initiating", found.rule_id if found else None)
    if verdict.outcome is Outcome.FAILURE:
        above = [x for x in (found.lines if found else ()) if not is_marker(x.message)]
        for line in above[-3:]:
            cited.cite(line, "context", None)
    if verdict.dumps is not None:
        for fact in verdict.dumps.evidence[:6]:
            line = LogLine(fact.file, 1, fact.shows, fact.shows, rank=fact.rank)
            cited.cite(line, "context", "flight-recorder")
    if verdict.outcome is Outcome.FAILURE:
        same = [
            c for c in verdict.selection.candidates if c.leaf == verdict.leaf and c is not found
        ]
        for observation in same[:3]:
            cited.cite(observation.line, "context", observation.rule_id)
    if verdict.waiting is not None and verdict.waiting.first is not None:
        first = verdict.waiting.first
        cited.cite(first.line, "cascade", first.rule_id)


def _ruled_out(verdict: Verdict, cited: _Citations) -> list[RuledOut]:
    found: list[RuledOut] = []
    for rejected in verdict.selection.rejected[:12]:
        leaf = rejected.observation.leaf
        if leaf is None or leaf == verdict.leaf or any(r.failure_type == leaf for r in found):
            continue
        name = cited.cite(rejected.observation.line, "context", rejected.observation.rule_id)
        found.append(RuledOut(failure_type=leaf, because=rejected.because, evidence=[name]))
    return found


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 4]} ..."


def _consequences(case: Case, verdict: Verdict) -> list[Consequence]:
    if verdict.outcome is Outcome.NO_FAILURE and verdict.leaf == NO_FAILURE:
        return []
    groups: dict[str, list[Observation]] = defaultdict(list)
    for observation in case.observations:
        if observation.line is verdict.line:
            continue
        loser = observation in verdict.selection.candidates and observation.leaf != verdict.leaf
        if observation.role in (Role.CASCADE, Role.TEARDOWN) or loser:
            groups[observation.leaf or observation.rule_id].append(observation)
    result = []
    for name, items in groups.items():
        rules = {o.rule_id for o in items}
        told = {o.line.rank for o in items if o.line.rank is not None}
        ranks = sorted(told | case.facts.ranks(rules))
        count = max(len(items), case.facts.count(rules))
        result.append(
            Consequence(
                failure_type=name,
                count=count,
                ranks=ranks,
                what=_shortened(items[0].line.message.strip()),
            )
        )
    return sorted(result, key=lambda c: -c.count)


def _recovery(verdict: Verdict, suspects: Suspects) -> Recovery:
    if verdict.outcome is Outcome.INCONCLUSIVE:
        action = Action.HEALTH_TESTS if verdict.leaf else Action.PAGE_HUMAN
        return Recovery(action=action, reason=f"the cause is not known: {verdict.why}")
    leaf = leaves().get(verdict.leaf or "")
    action = Action(verdict.action) if verdict.action else leaf.action if leaf else Action.NONE
    reason = verdict.why or (leaf.meaning if leaf else "")
    on_nodes = action in (Action.DRAIN_NODE, Action.EXCLUDE_NODE, Action.HEALTH_TESTS)
    return Recovery(
        action=action,
        targets=Targets(
            nodes=suspects.nodes if on_nodes else [], ranks=suspects.ranks if on_nodes else []
        ),
        reason=reason,
    )


def _attempts(case: Case, verdict: Verdict) -> list[Attempt]:
    numbers = sorted({v.origin.attempt for v in case.views if v.origin.attempt is not None})
    if not numbers and not verdict.selection.attempt_starts:
        return []
    if not numbers:
        return _attempts_in_log(case, verdict)
    result = []
    for number in numbers:
        steps = [
            row.step
            for view in case.views
            if view.origin.attempt == number
            for row in view.survey.steps
            if row.step is not None
        ]
        ended = "last" if number == numbers[-1] else "restarted"
        result.append(
            Attempt(
                number=number,
                first_step=min(steps, default=None),
                last_step=max(steps, default=None),
                ended=ended,
            )
        )
    return result


def _attempts_in_log(case: Case, verdict: Verdict) -> list[Attempt]:
    start = verdict.selection.attempt_starts[0]
    cuts = [
        o.line.number for o in verdict.selection.attempt_starts if o.line.file == start.line.file
    ]
    rows = case.view(start.line).survey.steps
    result = []
    edges = [0, *cuts, 1 << 60]
    for index in range(len(edges) - 1):
        steps = [
            r.step for r in rows if r.step is not None and edges[index] < r.line <= edges[index + 1]
        ]
        ended = "last" if index == len(edges) - 2 else "restarted"
        result.append(
            Attempt(
                number=index,
                first_step=min(steps, default=None),
                last_step=max(steps, default=None),
                ended=ended,
            )
        )
    return result


def _progress(verdict: Verdict) -> dict[str, object]:
    if verdict.last is None:
        return {}
    file, number = verdict.last.line.lies
    return {
        "last_step": verdict.last.step,
        "file": file,
        "line": number,
        "time": iso(verdict.last.time),
    }
