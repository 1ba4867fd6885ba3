"""A replayed year: learned rules answer more, precision holds, and mislabels do not get through."""

from rerail.evals.learning.replay import Replay
from rerail.evals.learning.year import year


def share(months, right=False):
    answered = sum(m.answered for m in months)
    if right:
        return sum(m.right for m in months) / max(1, answered)
    return answered / max(1, sum(m.incidents for m in months))


def test_the_share_answered_grows_and_precision_does_not_fall():
    cases = year(seed=3, incidents=90)
    shipped = Replay("shipped", learns=False, gated=False).run(cases)
    learned = Replay("learned", learns=True, gated=True).run(cases)
    assert share(learned.months[6:]) > share(shipped.months[6:]) + 0.1
    assert share(learned.months, right=True) >= share(shipped.months, right=True)
    assert {c.leaf for c in learned.accepted} <= {case.truth for case in cases if case.site}


def test_without_the_gate_a_wrong_label_becomes_a_rule_and_with_it_not():
    cases = year(seed=5, incidents=60, mislabelled=0.5)
    truths = {}
    for case in cases:
        truths.setdefault(
            case.log.splitlines()[case.line - 1].split("Error: ")[-1][:12], case.truth
        )
    live = Replay("live", learns=True, gated=False).run(cases)
    gated = Replay("gated", learns=True, gated=True).run(cases)
    assert share(live.months, right=True) < share(gated.months, right=True)
