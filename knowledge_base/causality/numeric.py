"""Failures that print no error: slow phases, loss spikes, NaN and stalls, found in step lines.

The detectors of `rerail.tools.detectors` judge; here their events are tied back to the log lines
of those steps and to leaves of the taxonomy. numpy is loaded only when there is a series to judge.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from rerail.domain.evidence import LogLine, Role
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.beside_good import action_of, checks_of, leaf_of, worst
from rerail.knowledge_base.causality.few_rows import behind_plan, slow_phase
from rerail.knowledge_base.causality.grown_timer import GrownTimer, grown_timer
from rerail.knowledge_base.causality.late_ranks import far_behind, late_rank
from rerail.knowledge_base.causality.progress import step_rows
from rerail.knowledge_base.causality.rank_timers import odd_rank, slow_rank
from rerail.knowledge_base.causality.timer_tables import in_timer_tables
from rerail.knowledge_base.causality.work_of_steps import with_work
from rerail.knowledge_base.phrases import phrase, phrase_in_bytes, says
from rerail.late_dataclass import dataclass
from rerail.log_parsers.middle import median
from rerail.log_parsers.series_files.forms import FORMS
from rerail.log_parsers.view import LogView

if TYPE_CHECKING:
    from rerail.log_parsers.step_numbers import StepRow
    from rerail.log_parsers.step_series import LogSeries
    from rerail.log_parsers.straggler_lines import StragglerNote
    from rerail.tools.detectors.events import Event, SeriesReport
    from rerail.tools.forecast.compare import Comparison

MIN_ROWS = 5
_FEWEST_BAD = 2
_FAR = 0.8
"""Least part of the best rank's speed at which one is not far behind."""
_PART_OF_A_STEP = 0.1
"""What a rank loses to its peers in a timer, as a share of the step, below which it is no reason to call it slow."""
MATERIAL_RATE = 0.05
"""Least share of the run's time that a slow phase in a throughput series must cost: a rate that is
averaged over a block of steps, or the clock between two entries, counts the pauses between them
(evaluation, checkpoints) as slowness."""
STARTING = 2
"""Step lines at the start of a file: the first batches always wait for the loader."""
DATA_SHARE = 0.5
_MOST_OF_FEW, _PAST_START = 0.6, 10
"""Share of the time of each of a few steps that waiting for data takes, and the step from which on they count."""
_AROUND = 50
"""Steps before and behind a change whose waiting times are compared."""
DATA_WAIT_S = 0.3
_NOTES = 4_000  # lines behind a change in which a framework's own reports are read
_LEAST_NOTES = 3
_THROTTLED = ", with its clock held back or too hot"
_JUST_ABOVE = 2  # step lines above a change between which what announces it may stand
_BEFORE, _BETTER = 20, 0.1
"""Steps whose spread a goal must outdo to be better, and by which part of itself."""
_MODERATE = 2.0
"""A loss that rises to more and stays there is a divergence, whatever the program announced."""
SAME_EVALS = 3
"""Identical evaluation results in a row that no learning model gives."""
_ORDER = (
    "loss_nan",
    "loss_divergence",
    "config_error",
    "target_not_reached",
    "fp16_loss_scale_exhausted",
    "slow_dataloading_storage",
    "fail_slow_unexplained",
)


@dataclass(frozen=True, slots=True)
class NumericFinding:
    """One conclusion from numbers, at the log line where it shows first.

    `established`: the line itself is the fault, as where a rule finds a loss that is no number.
    """

    leaf: str
    line: LogLine
    what: str
    lost_s: float = 0.0
    rank: int | None = None
    established: bool = False
    action: str | None = None
    unlike_good: str = ""
    """Which number differs from that of good runs of the same job, if that is the finding."""


def analyse(case: Case) -> list[NumericFinding]:
    """Return what the step series of the case show, most serious first."""
    findings: list[NumericFinding] = []
    completed = any(o.role is Role.SUCCESS for o in case.observations)
    met = any("target_met" in o.marks for o in case.observations)
    for view in case.views:
        if max(len(view.survey.steps), len(view.survey.counted)) >= MIN_ROWS:
            from rerail.log_parsers.step_series import series_of

            for one in series_of(view, least=MIN_ROWS):
                mine = (
                    _judge(case, view, one)
                    or _slow_from_start(case, view, one)
                    or _unlike_good(case, view, one)
                )
                findings += [_with_rank(case, f) for f in mine]
                findings += _data_wait(view, one)
        else:
            findings += (
                _stays_not_finite(view)
                or _ends_not_finite(view)
                or _told_slow(view)
                or _few_that_wait(view)
            )
        findings += [] if met else _frozen_evaluations(case, view)
        if findings or not completed:
            findings = _behind_peers(case, view, findings)
    if not findings and not completed:
        findings = (
            _in_few_rows(case)
            or _one_rank_apart(case)
            or _comes_late(case)
            or _behind_plan(case)
            or [NumericFinding(f.leaf, f.line, f.what, rank=f.rank) for f in in_timer_tables(case)]
        )
    return sorted(
        findings, key=lambda f: (_ORDER.index(f.leaf) if f.leaf in _ORDER else 9, -f.lost_s)
    )


def _in_few_rows(case: Case) -> list[NumericFinding]:
    """A phase that is slow to the end, in a log of a few step lines."""
    found = []
    for view in case.views:
        phase = slow_phase(view)
        line = view.line(phase.row.line) if phase is not None else None
        if phase is not None and line is not None and not _announced(case, view, phase.row):
            what = f"step time rises from {phase.before_s:.4g} s to {phase.after_s:.4g} s at step {phase.row.step}"
            found.append(_with_rank(case, NumericFinding("fail_slow_unexplained", line, what)))
        elif phase is None and (grown := grown_timer(view)) is not None:
            found += _as_finding(case, view, grown)
    return found


def _as_finding(case: Case, view: LogView, grown: GrownTimer) -> list[NumericFinding]:
    line = view.line(grown.row.line)
    if line is None or _announced(case, view, grown.row):
        return []
    leaf = "slow_dataloading_storage" if grown.of_data else "fail_slow_unexplained"
    what = f"{grown.name} grows from {grown.before:.4g} to {grown.after:.4g} at step {grown.row.step}, as the step does"
    return [NumericFinding(leaf, line, what)]


def _comes_late(case: Case) -> list[NumericFinding]:
    """One rank says what all say of a step long after all others, step after step, or is far behind in its own work."""
    late = late_rank(case) or far_behind(case)
    if late is None or case.says("ranks-work-apart"):
        return []
    return [NumericFinding("fail_slow_unexplained", late.line, late.describe(), rank=late.rank)]


def _behind_plan(case: Case) -> list[NumericFinding]:
    """Steps that are slower than their own lines say that they should be."""
    found = []
    for view in case.views:
        first = behind_plan(case, view)
        line = view.line(first) if first is not None else None
        if line is not None:
            what = "the steps are slower than their lines say that they should be"
            found.append(NumericFinding("fail_slow_unexplained", line, what))
    return found


def _one_rank_apart(case: Case) -> list[NumericFinding]:
    """One rank's own part of the steps takes far longer than that of all others."""
    slow = odd_rank(case)
    if slow is None or slow.line is None or case.says("ranks-work-apart"):
        return []
    leaf = (
        "slow_dataloading_storage" if says("timer-of-data", slow.part) else "fail_slow_unexplained"
    )
    return [NumericFinding(leaf, slow.line, slow.describe(), rank=slow.rank)]


def _behind_peers(
    case: Case, view: LogView, findings: list[NumericFinding]
) -> list[NumericFinding]:
    """Add the rank that Megatron's timers of all ranks show far behind its peers to what was found to be slow."""
    if not any(case.lines_with(view, "timers-of-all-ranks")):
        return findings
    from rerail.tools.localize.megatron_timers import outlier

    one = outlier((number, view.text(number) or "") for number in view.numbers)
    line = view.line(one.line) if one is not None else None
    if one is None or line is None:
        return findings
    what = f"{one.name} takes {one.ms:.5g} ms on rank {one.rank} and {one.others_ms:.5g} ms on its peers"
    slow = [found for found in findings if found.leaf == "fail_slow_unexplained"]
    lost_s, steps = (one.ms - one.others_ms) / 1000.0, view.survey.steps
    times = [row.step_time for row in steps if row.step_time is not None]
    little = times and lost_s < _PART_OF_A_STEP * min(times)
    if not slow and (little or any(case.lines_with(view, "ranks-work-apart"))):
        return findings  # the first stage reads, the last one has the loss: of every run
    if not slow:
        return [*findings, NumericFinding("fail_slow_unexplained", line, what, rank=one.rank)]
    return [
        replace(found, rank=one.rank, what=f"{found.what}; {what}")
        if found in slow and found.rank is None
        else found
        for found in findings
    ]


def _with_rank(case: Case, finding: NumericFinding) -> NumericFinding:
    """A slow phase shows in the rank that prints; who is slow, the timers of all ranks tell."""
    if finding.leaf == "loss_nan":
        return finding
    if finding.leaf != "fail_slow_unexplained":
        return replace(finding, rank=None)
    slow = slow_rank(case, finding.line)
    if slow is None and (named := _named_slow(case, finding.line)) is not None:
        what = f"{finding.what}; the framework's own report names rank {named.rank} as the slowest from then on"
        line = case.view(finding.line).line(named.line) or finding.line
        leaf = "slow_gpu" if named.throttled else finding.leaf
        what += _THROTTLED if named.throttled else ""
        return replace(finding, leaf=leaf, rank=named.rank, what=what, line=line)
    if slow is None:
        return replace(finding, rank=None)
    what = f"{finding.what}; {slow.describe()}"
    return replace(finding, rank=slow.rank, what=what)


def _named_slow(case: Case, onset: LogLine) -> StragglerNote | None:
    """Return the first note in which the framework names the rank that it names in all notes from the onset on."""
    from rerail.log_parsers.straggler_lines import straggler_notes

    view = case.view(onset)
    last = view.numbers[-1] if view.numbers else 0
    lines = (
        (n, view.text(n) or "")
        for n in view.between(onset.number, last)
        if n <= onset.number + _NOTES
    )
    notes = list(straggler_notes(lines))
    ranks = {note.rank for note in notes}
    if len(notes) < _LEAST_NOTES or len(ranks) != 1:
        return None
    return next((note for note in notes if note.throttled), notes[0])


def _announced(case: Case, view: LogView, row: StepRow) -> bool:
    """Tell whether a line just above a step line says that the steps do other work from there on."""
    above = [one.line for one in step_rows(view) if one.line < row.line]
    first = above[-_JUST_ABOVE:][0] if above else 0
    return any(
        "work_changed" in o.marks and o.line.file == view.name and first < o.line.number < row.line
        for o in case.observations
    )


def _profiled(view: LogView, one: LogSeries, onset: Event) -> bool:
    """Tell whether a profiler was started just above a change to slow steps, which are over at the end."""
    row, starts = one.rows[onset.index], phrase_in_bytes("profiler-starts")
    first = one.rows[max(0, onset.index - _JUST_ABOVE)].line
    if not any(starts.search(view.survey.kept[n]) for n in view.between(first, row.line)):
        return False
    last = median([float(t) for t in one.series.step_time_s[-MIN_ROWS:] if t == t] or [math.inf])
    return last < (onset.before + onset.after) / 2


def _gets_better(case: Case, view: LogView, one: LogSeries, index: int) -> bool:
    """Tell whether what the training is for, as step lines print it, is well better at the end than where the loss rose.

    By more than it moved just before, and by more than a part of itself: a guess moves by as much.
    """
    goals = phrase("goal-of-step")
    may = set(case.lines_that_may_hold(view, "goal-of-step"))
    told = [
        goals.search(view.text(row.line) or "") if row.line in may else None for row in one.rows
    ]
    near, late = [m for m in told[: index + 1] if m], [m for m in told[index:] if m]
    if not near or not late:
        return False
    before = [float(m["value"]) for m in near[-_BEFORE:]]
    then, now = median(before[-STARTING:]), median([float(m["value"]) for m in late[-STARTING:]])
    gain = now - then if late[-1]["up"] else then - now
    return gain > max(max(before) - min(before), _BETTER * abs(then))


def _moderate(event: Event) -> bool:
    """Tell whether a loss rose by no more than other data or another objective explains; it must be a number."""
    return 0.0 < event.before and event.after <= _MODERATE * event.before


def _judge(case: Case, view: LogView, one: LogSeries) -> list[NumericFinding]:
    from rerail.tools.detectors.detect import detect
    from rerail.tools.detectors.events import EventKind, SeriesOutcome

    report = detect(one.series)
    if report.outcome is SeriesOutcome.FAIL_SLOW:
        sized = with_work(view, one, set(case.lines_that_may_hold(view, "size-of-work")))
        report = detect(sized) if sized is not None else report
    found: list[NumericFinding] = []
    for event in report.events:
        line = view.line(one.rows[event.index].line) if 0 <= event.index < len(one.rows) else None
        if line is None:
            continue
        if event.kind is EventKind.NAN and report.outcome is SeriesOutcome.NAN:
            name = event.note.rpartition(", ")[0].rpartition(", ")[0] or "loss"
            what = f"the {name} is not finite from step {event.step}"
            if one.series.value is not None:
                what = f"{name}, which no word calls a loss, is not finite from count {event.step}"
            # Files of numbers have no line that a rule knows; a value under a known name says as much.
            sure = one.rows[event.index].form in FORMS and _stays(one, event)
            found.append(
                NumericFinding("loss_nan", line, what, rank=one.series.rank, established=sure)
            )
            break
        if event.kind is EventKind.LOSS_DIVERGENCE and not (
            (_moderate(event) and _announced(case, view, one.rows[event.index]))
            or _gets_better(case, view, one, event.index)
        ):
            what = (
                f"the loss jumps from {event.before:.4g} to {event.after:.4g} at step {event.step} "
                "and does not come back"
                if event.after
                else f"the loss falls from {event.before:.4g} to exactly 0 at step {event.step} and stays there"
            )
            found.append(NumericFinding("loss_divergence", line, what))
    if report.outcome is SeriesOutcome.FAIL_SLOW:
        found += _slow(case, view, one, report)
    return found


def _stays(one: LogSeries, event: Event) -> bool:
    """Tell whether no value behind the first that is no number is one again; one alone may be a skipped step."""
    values = [row.loss for row in one.rows[event.index :] if row.loss is not None]
    return len(values) > 1 and not any(math.isfinite(value) for value in values)


def _ends_not_finite(view: LogView) -> list[NumericFinding]:
    """The last row of a log has a loss that is no number, the first one: nothing shows that the run got over it."""
    rows = [row for row in view.survey.steps if row.loss is not None]
    finite = [math.isfinite(row.loss or 0.0) for row in rows]
    line = view.line(rows[-1].line) if rows else None
    if line is None or finite[-1] or not all(finite[:-1]) or len(rows) <= _FEWEST_BAD:
        return []
    what = f"the loss is not finite at step {rows[-1].step}, the last one that is told"
    return [NumericFinding("loss_nan", line, what, rank=rows[-1].rank)]


def _stays_not_finite(view: LogView) -> list[NumericFinding]:
    """The few rows of a short log end with gradient norms that are no number, and a loss that is none either, or nothing.

    A trainer that leaves such losses out of its mean prints 0.0 (Hugging Face, `logging_nan_inf_filter`); one row
    alone may be a step that loss scaling skipped.
    """
    rows = [row for row in view.survey.steps if row.grad_norm is not None]
    last_good = max(
        (at for at, row in enumerate(rows) if math.isfinite(row.grad_norm or 0.0)), default=-1
    )
    bad = rows[last_good + 1 :]
    line = view.line(bad[0].line) if len(bad) >= _FEWEST_BAD else None
    # A step that loss scaling skips prints no loss, or the one that it had.
    told = [row.loss for row in bad[1:]]
    if line is None or any(loss is None or (math.isfinite(loss) and loss) for loss in told):
        return []
    what = f"the gradient norm is not finite from step {bad[0].step}, and the loss is no number any more"
    return [NumericFinding("loss_nan", line, what, rank=bad[0].rank)]


def _told_slow(view: LogView) -> list[NumericFinding]:
    """In a log of too few steps for a series, the one rank that the framework's own last report names, by far.

    A report before it must not name that rank: who is always last by a little is not slow.
    """
    from rerail.log_parsers.straggler_lines import BELOW, COMPARES, WORDS, straggler_notes

    kept = view.survey.kept
    lines = [n for n in view.numbers if any(word in kept[n] for word in WORDS)]
    notes = list(straggler_notes((number, view.text(number) or "") for number in lines))
    last = next((number for number in reversed(lines) if COMPARES in kept[number]), None)
    far = any(note.line == last and (note.score or 1.0) <= _FAR for note in notes)
    if len({note.rank for note in notes}) != 1 or not far:
        return []
    # The only report tells nothing of before; a GPU that is held back needs none.
    alone = notes[0].throttled and (notes[0].score or 1.0) <= BELOW
    if notes[0].line == lines[0] and not alone:
        return []
    first, line = notes[0], view.line(notes[0].line)
    if line is None:
        return []
    leaf = "slow_gpu" if first.throttled else "fail_slow_unexplained"
    what = f"the framework's own report names rank {first.rank} as the slowest"
    what += ", and did not before" if first.line != lines[0] else ""
    what += _THROTTLED if first.throttled else ""
    return [NumericFinding(leaf, line, what, rank=first.rank)]


def _slow_from_start(case: Case, view: LogView, one: LogSeries) -> list[NumericFinding]:
    """A run that is slow from its first step has no healthy steps to compare with but a forecast's."""
    seen = _against_forecast(case, one)
    if seen is None or not seen.slower_from_start:
        return []
    line = view.line(one.rows[0].line)
    if line is None:
        return []
    return [NumericFinding("fail_slow_unexplained", line, seen.sentence(), lost_s=seen.lost_s)]


def _unlike_good(case: Case, view: LogView, one: LogSeries) -> list[NumericFinding]:
    """A run that differs from good ones shows nothing of its own; the first step that differs is the line."""
    seen = worst(checks_of(case, one))
    if seen is None:
        return []
    since = seen.since_step or 0
    row = next((r for r in one.rows if r.step is not None and r.step >= since), one.rows[0])
    line = view.line(row.line)
    if line is None:
        return []
    return [
        NumericFinding(
            leaf_of(seen), line, seen.says, action=action_of(seen), unlike_good=seen.what
        )
    ]


def _against_forecast(case: Case, one: LogSeries) -> Comparison | None:
    if case.expected is None or one.from_rate or one.from_clock:
        return None
    from rerail.tools.forecast.compare import compare

    return compare(one.series.step_time_s, case.expected)


def against_forecast(case: Case) -> Comparison | None:
    """Return the longest series of step times beside the forecast; None without one or the other."""
    if case.expected is None:
        return None
    from rerail.log_parsers.step_series import series_of

    found = [
        seen
        for view in case.views
        if len(view.survey.steps) >= MIN_ROWS
        for one in series_of(view, least=MIN_ROWS)
        if (seen := _against_forecast(case, one)) is not None
    ]
    return max(found, key=lambda seen: seen.steps, default=None)


def _slow(case: Case, view: LogView, one: LogSeries, report: SeriesReport) -> list[NumericFinding]:
    from rerail.tools.detectors.events import EventKind, Stage

    if (one.from_rate or one.from_clock) and _lost_share(one, report) < MATERIAL_RATE:
        return []
    kinds = (EventKind.SLOW_ONSET, EventKind.CREEP)
    onset = next(
        (
            e
            for e in report.events
            if e.kind in kinds
            and e.stage is not Stage.BRIEF
            and 0 <= e.index < len(one.rows)
            and not _announced(case, view, one.rows[e.index])
            and not _profiled(view, one, e)
        ),
        None,
    )
    row = one.rows[onset.index] if onset else None
    # A time on a line of its own is what shows it, not the loss.
    line = None if row is None else view.line(row.time_line or row.line) or view.line(row.line)
    if onset is None or line is None:
        return []
    if one.from_rate:
        what = f"throughput falls by {1 - onset.before / onset.after:.0%} at step {onset.step}"
        return [NumericFinding("fail_slow_unexplained", line, what)]
    name = "the time of a step, pauses included," if one.from_clock else "step time"
    what = f"{name} rises from {onset.before:.4g} s to {onset.after:.4g} s ({onset.change:+.1%}) at step {onset.step}"
    was, now = _median_wait(one, onset.index, -1), _median_wait(one, onset.index, 1)
    if (
        was is not None
        and now is not None
        and now - was >= DATA_SHARE * (onset.after - onset.before)
    ):
        what += f"; waiting for data rises from {was:.4g} s to {now:.4g} s"
        return [NumericFinding("slow_dataloading_storage", line, what, lost_s=report.lost_s)]
    return [NumericFinding("fail_slow_unexplained", line, what, lost_s=report.lost_s)]


def _median_wait(one: LogSeries, index: int, side: int) -> float | None:
    """Return the median time that steps wait for data, before or behind a point of the series."""
    rows = (
        one.rows[index : index + _AROUND] if side > 0 else one.rows[max(0, index - _AROUND) : index]
    )
    waits = [row.data_time for row in rows if row.data_time is not None]
    return median(waits) if len(waits) >= MIN_ROWS else None


def _data_wait(view: LogView, one: LogSeries) -> list[NumericFinding]:
    """Training waits for its data when that is what most of the time of its steps goes to."""
    rows = [
        r for r in one.rows[STARTING:]
        if r.data_time is not None and r.step_time and r.data_time <= 1.05 * r.step_time
    ]  # fmt: skip
    if len(rows) < MIN_ROWS:
        return _few_that_wait(view)
    waited = sum(r.data_time or 0.0 for r in rows)
    share = waited / sum(r.step_time or 0.0 for r in rows)
    if share < DATA_SHARE or waited / len(rows) < DATA_WAIT_S:
        return []
    first = next(
        r for r in rows
        if (r.data_time or 0.0) > DATA_SHARE * (r.step_time or 0.0) and (r.data_time or 0.0) >= DATA_WAIT_S
    )  # fmt: skip
    line = view.line(first.line)
    if line is None:
        return []
    what = f"{share:.0%} of the time of the steps is spent waiting for data, first at step {first.step}"
    return [NumericFinding("slow_dataloading_storage", line, what)]


def _few_that_wait(view: LogView) -> list[NumericFinding]:
    """In a log of too few steps for a series, most of whose time goes into waiting for data, more than once."""
    # The first batches of a run always wait.
    rows = [row for row in step_rows(view) if row.step_time and (row.step or 0) >= _PAST_START]
    waits = [
        row
        for row in rows
        if row.data_time is not None
        and DATA_WAIT_S <= row.data_time <= 1.05 * (row.step_time or 0.0)
        and row.data_time >= _MOST_OF_FEW * (row.step_time or 0.0)
    ]
    line = view.line(waits[0].line) if len(waits) >= _FEWEST_BAD else None
    if line is None or len(rows) < _LEAST_NOTES or any(row.data_time is None for row in rows):
        return []
    share = sum(row.data_time or 0.0 for row in rows) / sum(row.step_time or 0.0 for row in rows)
    if share < _MOST_OF_FEW:
        return []
    what = f"{share:.0%} of the time of the few steps shown is spent waiting for data"
    return [NumericFinding("slow_dataloading_storage", line, what)]


def _lost_share(one: LogSeries, report: SeriesReport) -> float:
    times = one.series.step_time_s
    lost = 0.0
    unit_s = one.series.unit_s if math.isfinite(one.series.unit_s) else 1.0
    for episode in report.episodes:
        before = episode.before_s / unit_s
        lost += sum(max(0.0, t - before) for t in times[episode.first : episode.last] if t == t)
    return float(lost / (sum(t for t in times if t == t) or 1.0))


def _frozen_evaluations(case: Case, view: LogView) -> list[NumericFinding]:
    """A model that collapsed gives the same evaluation result to the last digit, every time."""
    seen: dict[str, list[tuple[str, int]]] = defaultdict(list)
    told = phrase_in_bytes("evaluation-result")
    for number in case.lines_with(view, "evaluation-result"):
        if match := told.search(view.survey.kept[number]):
            metric = (match["metric"] or b"").decode()
            seen[metric].append((match["value"].decode(), number))
    frozen = [
        values for values in seen.values()
        if len(values) >= SAME_EVALS and len({v for v, _ in values[-SAME_EVALS:]}) == 1
    ]  # fmt: skip
    if not frozen:
        return []
    values = min(frozen, key=lambda v: v[0][1])
    same = values[-1][0]
    run = [number for value, number in values if value == same]
    # The first repetition is what proves it; the first value alone could have been luck.
    line = view.line(run[1])
    if line is None:
        return []
    what = f"{len(run)} evaluations in a row gave exactly {same}: the model no longer learns"
    return [NumericFinding("target_not_reached", line, what)]
