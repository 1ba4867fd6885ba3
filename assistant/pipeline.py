"""From paths to a diagnosis: the one place that puts the wings together.

The rules verdict is complete here; a model, where one is configured, only adds to it later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rerail.assistant.narrow import EVERYTHING, Narrow
from rerail.assistant.profiles_beside import with_profiles
from rerail.assistant.scanned_logs import read_scanned
from rerail.cached_yaml import cache_folder
from rerail.domain.diagnosis import AgainstForecast, BesideGood, Diagnosis
from rerail.domain.evidence import Observation
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.diagnosis_record import to_diagnosis
from rerail.knowledge_base.causality.progress import waits_outlived
from rerail.knowledge_base.causality.verdict import Verdict, judge
from rerail.knowledge_base.job_facts import JobFacts
from rerail.knowledge_base.matcher import RuleSet, match, rule_set
from rerail.knowledge_base.rules import usable_rules
from rerail.late_dataclass import dataclass
from rerail.log_parsers.binary_content import packed_as
from rerail.log_parsers.collect import Collection, ScanPlan, assemble, collect
from rerail.log_parsers.line_kinds import LineKinds
from rerail.log_parsers.opening import Joined
from rerail.log_parsers.rotated import apart, as_it_lies, ends_of_bytes, joined
from rerail.log_parsers.scan import Scanner, make_scanner
from rerail.log_parsers.sources import Discovery, Problem, Source, named_sources
from rerail.log_parsers.survey import FileSurvey, survey_stream
from rerail.settings import load_settings

if TYPE_CHECKING:
    from rerail.domain.series import StepSeries
    from rerail.knowledge_base.waiting.dumps.verdict import DumpVerdict
    from rerail.tools.detectors.against_runs import Check
    from rerail.tools.forecast.compare import Expected


@dataclass(frozen=True, slots=True)
class Outcome:
    """A diagnosis with what it was made from."""

    diagnosis: Diagnosis
    case: Case
    verdict: Verdict
    collection: Collection


def _judge_dumps(collection: Collection) -> DumpVerdict | None:
    """Judge the flight-recorder dumps among the files; what is no dump is reported as unread."""
    from rerail.log_parsers.flight_recorder.recognise import looks_like_flight_recorder

    paths = []
    for one in collection.binaries:
        path = one.source.path
        if path is not None and looks_like_flight_recorder(one.head, one.source.name):
            paths.append(path)
        else:
            packed = packed_as(one.head)
            why = f"it is {packed}" if packed else "not a text file and no known dump"
            hint = "unpack it, and name what was in it" if packed else "name the job's log, as text"
            collection.problems.append(Problem(one.source.name, f"{why}; it was not read", hint))
    if not paths:
        return None
    from rerail.knowledge_base.waiting.dumps.judge import diagnose_dumps

    verdict = diagnose_dumps(paths)
    names = {str(one.source.path): one.source.name for one in collection.binaries}
    return replace(
        verdict,
        evidence=tuple(
            replace(fact, file=names.get(fact.file, fact.file)) for fact in verdict.evidence
        ),
    )


@lru_cache(maxsize=1)
def rules() -> RuleSet:
    """Return the rules of this installation, laid out for scanning."""
    return rule_set(usable_rules()[0])


def scan_plan(*, mine: bool = False) -> ScanPlan:
    """Return what the reader has to look for; `mine` counts the templates of all lines as well."""
    engine = load_settings().scan_engine or None
    return ScanPlan(rules().signatures, cache_folder(), engine, mine)


def diagnose_paths(
    paths: Iterable[str | Path],
    *,
    on_progress: Callable[[int, int], None] | None = None,
    narrow: Narrow = EVERYTHING,
    mine: bool = False,
    expected: Expected | None = None,
    located: Discovery | None = None,
    good_runs: Sequence[Sequence[StepSeries]] = (),
) -> Outcome:
    """Read the evidence and return the rules verdict.

    `expected` is a forecast of the step time; `located` is evidence found by the name of its job; `good_runs`
    are the series of good runs of the same job.

    Raises:
        EvidenceError: when nothing could be read at all.
    """
    started = time.perf_counter()
    plan = scan_plan(mine=mine)
    collection = collect(
        paths,
        plan,
        workers=load_settings().workers,
        on_progress=on_progress,
        located=located,
        read_scanned=partial(read_scanned, signatures=plan.signatures),
    )
    return diagnose_collection(
        collection, started=started, narrow=narrow, expected=expected, good_runs=good_runs
    )


def diagnose_texts(files: Mapping[str, str]) -> Outcome:
    """Return the rules verdict on texts in memory, as if they were the files of one job."""
    return diagnose_collection(assemble(survey_texts(files)))


def survey_texts(files: Mapping[str, str]) -> list[FileSurvey]:
    """Return what one pass over each of these texts brings back."""
    held = {name: text.encode("utf-8", "surrogateescape") for name, text in files.items()}

    def opened(source: Source) -> IO[bytes]:
        return BytesIO(held[source.name])

    return [
        survey_stream(
            source,
            Joined(source.parts, opened) if source.parts else opened(source),
            rules().signatures,
            _scanner(),
        )
        for source in joined(named_sources(files), lambda one: ends_of_bytes(held[one.name]))
    ]


@lru_cache(maxsize=1)
def _scanner() -> Scanner:
    plan = scan_plan()
    return make_scanner(plan.signatures, cache=plan.cache, engine=plan.engine)


def diagnose_collection(
    collection: Collection,
    *,
    started: float | None = None,
    narrow: Narrow = EVERYTHING,
    expected: Expected | None = None,
    good_runs: Sequence[Sequence[StepSeries]] = (),
) -> Outcome:
    """Return the rules verdict on evidence that was already read."""
    begun = time.perf_counter() if started is None else started
    found = narrow.apply(collection.views, match(collection.views, rules()))
    dumps = _judge_dumps(collection)
    collection.problems += [
        Problem("rules of this site", f"left out: {error}", error.hint or "rerail kb lint")
        for error in usable_rules()[1]
    ]
    case = Case(
        collection.views,
        found.observations,
        found.counts,
        collection.problems,
        facts=JobFacts(collection.views, rules().ids) if narrow == EVERYTHING else JobFacts(),
        only_rank=narrow.rank,
        expected=expected,
        good_runs=good_runs,
        missing_shards=collection.missing_shards,
    )
    if outlived := {id(one) for one in waits_outlived(case)}:
        case.observations = [one for one in case.observations if id(one) not in outlived]
    verdict = judge(case, {rule.id: rule for rule in rules().rules}, dumps)
    diagnosis = to_diagnosis(case, verdict, elapsed_s=time.perf_counter() - begun)
    if expected is not None:
        diagnosis = diagnosis.model_copy(update={"forecast": _against_forecast(case)})
    if good_runs:
        diagnosis = diagnosis.model_copy(update={"baseline": _beside_good(case)})
    if narrow == EVERYTHING:
        diagnosis = with_profiles(diagnosis, collection, verdict.identities.world_size)
    if any(view.survey.parts for view in collection.views):
        return as_files_lie(Outcome(diagnosis, case, verdict, collection))
    return Outcome(diagnosis, case, verdict, collection)


def as_files_lie(outcome: Outcome) -> Outcome:
    """Return an outcome by the files as they lie there, where parts of a rotated log were judged as one."""
    case, verdict = outcome.case, outcome.verdict
    views = apart(case.views)
    names = {part.source.name: v.name for v in case.views for part in v.survey.parts}
    offsets = {
        view.name: case.offsets[of]
        for view in views
        if (of := names.get(view.name, view.name)) in case.offsets
    }

    def lying(one: Observation) -> Observation:
        return replace(one, line=as_it_lies(one.line), lines=tuple(map(as_it_lies, one.lines)))

    last = verdict.last
    return Outcome(
        outcome.diagnosis,
        replace(
            case,
            views=views,
            observations=[lying(one) for one in case.observations],
            offsets=offsets,
            kinds=LineKinds(),
            _below={},
        ),
        replace(
            verdict,
            line=None if verdict.line is None else as_it_lies(verdict.line),
            observation=None if verdict.observation is None else lying(verdict.observation),
            last=None if last is None else replace(last, line=as_it_lies(last.line)),
        ),
        replace(outcome.collection, views=views),
    )


def _beside_good(case: Case) -> list[BesideGood]:
    from rerail.knowledge_base.causality.beside_good import beside_good

    name, checks = beside_good(case) or ("", ())
    if not checks:
        says = "whether the run is as good as it was cannot be known: the evidence holds no series of steps"
        return [BesideGood(series=name, what="series", status="unknown", says=says)]
    return [BesideGood(series=name, **_fields(check)) for check in checks]


def _fields(check: Check) -> dict[str, Any]:
    facts = check.to_json()
    del facts["from_start"]
    return facts


def _against_forecast(case: Case) -> AgainstForecast | None:
    from rerail.knowledge_base.causality.numeric import against_forecast

    seen = against_forecast(case)
    if seen is None:
        return None
    return AgainstForecast(
        forecast=seen.name,
        steps=seen.steps,
        observed_p50_s=seen.observed_p50_s,
        expected_p50_s=seen.expected_p50_s,
        expected_p95_s=seen.expected_p95_s,
        ratio=seen.ratio,
        slower=seen.slower,
        slower_from_start=seen.slower_from_start,
        lost_s=seen.lost_s,
        says=seen.sentence(),
    )
