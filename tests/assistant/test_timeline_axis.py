"""The axis of a timeline: in order, to scale within a burst, long waits shortened, nothing lost."""

from rerail.assistant.presentation.incident import TimelineRow
from rerail.assistant.presentation.timeline_axis import LEFT, RIGHT, WIDTH, timeline_axis


def row(clock, word="log", kind="context", day="2026-01-01"):
    return TimelineRow(f"{day}T{clock}.000Z", clock, word, word, f"at {clock}", "", (), kind)


def test_a_burst_is_to_scale_and_a_day_until_the_diagnosis_is_short():
    rows = [row("03:00:00", kind="initiating"), row("03:00:10"), row("03:00:30"), row("09:00:00", "rules", day="2026-01-02")]  # fmt: skip
    axis = timeline_axis(rows)
    (_, a), (_, b), (_, c), (_, d) = axis.stops
    assert (a, d) == (LEFT, WIDTH - RIGHT) and abs((c - b) / (b - a) - 2) < 0.02
    assert d - c < 4 * (c - b) and [words for _, words in axis.waits] == ["29 h 59 min"]
    assert [mark.fault for mark in axis.marks] == [True, False, False, False]
    assert [word for word, _ in axis.lanes] == ["log", "rules"]
    assert (axis.begins, axis.ends) == ("2026-01-01 03:00:00", "2026-01-02 09:00:00")


def test_what_lies_close_is_one_mark_with_its_number_and_a_first_fault_stays_its_own():
    rows = [row(f"03:00:{second:02}") for second in range(60)] * 20
    rows = [*sorted(rows, key=lambda one: one.time), row("03:30:00", kind="initiating")]
    axis = timeline_axis(rows)
    assert sum(mark.count for mark in axis.marks) == len(rows) == 1201
    assert len(axis.marks) < 110 and axis.marks[-1].fault


def test_one_moment_alone_is_no_axis():
    assert timeline_axis([row("03:00:00"), row("03:00:00", "rules")]) is None
    assert timeline_axis([]) is None
