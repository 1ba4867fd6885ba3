"""A learned rule is judged by what it matches, waits in the shadow, and needs a person."""

import re

import pytest

from rerail.domain.incident import Confirmation
from rerail.errors import RuleError, UsageError
from rerail.knowledge_base.learning.backtracking import backtracking_complaints
from rerail.knowledge_base.learning.candidate import Candidate, State, agree, judge
from rerail.knowledge_base.learning.corpus import Probe, rule_probes
from rerail.knowledge_base.learning.patterns import pattern_from
from rerail.knowledge_base.learning.shelf import decide, observe, put, shelved
from rerail.knowledge_base.rules import load_rules
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.incidents import record
from rerail.knowledge_base.store.judgement import confirm
from rerail.settings import Settings

LINE = "[rank3]: RuntimeError: vastfs: lease on shard 77 was lost to node ice-041 (epoch 3)"
OTHER = "2026-03-01 10:00:00 [rank9]: RuntimeError: vastfs: lease on shard 4242 was lost to node elm-7 (epoch 912)"


def candidate(**changes):
    values = {
        "pattern": pattern_from([LINE]),
        "leaf": "shared_fs_error",
        "incident": "INC-a",
        "positives": (LINE,),
    }
    return Candidate(**{**values, **changes})


def test_a_pattern_keeps_what_names_the_failure_and_matches_other_jobs():
    pattern = pattern_from([LINE])
    assert re.search(pattern, OTHER) and "77" not in pattern and "ice" not in pattern
    assert not re.search(pattern, "vastfs: lease on shard 77 was renewed by node ice-041")
    assert backtracking_complaints(pattern) == []


def test_several_lines_leave_what_they_share():
    pattern = pattern_from(
        ["alpha reader lost the blue ticket 5", "alpha reader lost the green ticket 9"]
    )
    assert re.search(pattern, "alpha reader lost the red ticket 1") and "blue" not in pattern


@pytest.mark.parametrize("line", ["12:00:01 77 0x7f3a", "error 5", "", "x"])
def test_a_line_that_tells_nothing_gives_no_rule(line):
    with pytest.raises(RuleError):
        pattern_from([line])


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+b", r"(?:a|aa)*b", r".*lost.*", r"(x{0,5}y){1,9}", r"a(?=b)", r"(a)\1", "a{0,5000}", "(", "x" * 700,
     "".join(f"w{i}.{{0,120}}" for i in range(14))],
)  # fmt: skip
def test_dangerous_patterns_are_refused(pattern):
    assert backtracking_complaints(pattern)
    assert judge(candidate(pattern=pattern), [])


def test_all_shipped_rules_pass_as_their_own_judges():
    """The lint must not be so strict that ordinary patterns fail it."""
    plain = [r for r in load_rules() if len(r.pattern) < 120]
    passed = [r for r in plain if not backtracking_complaints(r.pattern)]
    assert len(passed) > 0.8 * len(plain)


def test_a_candidate_must_match_its_line_and_nothing_harmless_or_of_another_cause():
    good = candidate()
    assert judge(good, rule_probes(load_rules())) == []
    harmless = Probe(OTHER, None, "benign-rule")
    assert "a harmless line" in judge(good, [harmless])[0]
    assert "cuda_oom" in judge(good, [Probe(OTHER, "cuda_oom", "INC-b")])[0]
    assert judge(good, [Probe(OTHER, "shared_fs_error", "INC-b")]) == []
    assert "its own line" in judge(candidate(pattern="something +else +entirely"), [])[0]
    assert "unknown leaf" in judge(candidate(leaf="gremlins"), [])[0]
    assert judge(candidate(pattern="RuntimeError"), rule_probes(load_rules()))


@pytest.mark.parametrize(
    "line",
    [
        "step 5: WARNING gradient overflow",
        "torch.OutOfMemoryError: CUDA out of memory",
        '  File "/a/b.py", line 3, in f',
        "Traceback (most recent call last):",
        "NVRM: Xid (PCI:0000:8d:00): 79, GPU has fallen off the bus",
    ],
)
def test_a_filter_never_takes_a_line_that_a_signature_a_severity_word_or_a_traceback_touches(line):
    made = Candidate(kind="filter", pattern=re.escape(line), incident="INC-a", positives=(line,))
    assert judge(made, rule_probes(load_rules()))


def test_a_filter_for_a_routine_line_passes():
    line = "INFO loader prefetched block 77 of bucket alpha"
    made = Candidate(
        kind="filter", pattern=pattern_from([line]), incident="INC-a", positives=(line,)
    )
    assert judge(made, rule_probes(load_rules())) == []


def test_proposals_agree_by_what_they_match_not_by_spelling():
    probes = [LINE, OTHER, "something else"]
    same = ["lease on shard", r"lease +on +shard"]
    assert agree([*same, "something"], probes) == ("lease on shard", 2)
    assert agree(["lease", "something", "renewed"], probes) is None
    assert agree(["(a+)+b", "nothing here", "nope"], probes) is None
    assert agree([], probes) is None


@pytest.fixture
def store(tmp_path):
    engine = open_store(Settings(data_dir=tmp_path / "data"))
    yield engine
    engine.dispose()


@pytest.fixture
def confirmed():
    from rerail.assistant.record import make_incident
    from rerail.evals.cases.run import diagnose_text

    return lambda text: make_incident(diagnose_text(f"step 1 loss 2\nstep 2 loss 1\n{text}\n"), [])


def test_the_shadow_counts_for_and_against_and_people_decide(store, confirmed):
    first, second, third = (confirmed(OTHER.replace("4242", str(n))) for n in (1, 2, 3))
    made = candidate(incident=first.id)
    with writing(store) as connection:
        assert put(connection, made) and not put(connection, made)
        assert observe(connection, first, "shared_fs_error") == []  # no witness for itself
        assert observe(connection, second, "shared_fs_error") == [made.id]
        assert observe(connection, second, "shared_fs_error") == []
    with pytest.raises(UsageError, match="1 incidents for it"), writing(store) as connection:
        decide(connection, made.id, accept=True, by="ann")
    with writing(store) as connection:
        observe(connection, third, "shared_fs_error")
        assert shelved(connection)[0].ready
        assert decide(connection, made.id, accept=True, by="ann").candidate == made
    with pytest.raises(UsageError, match="accepted already"), writing(store) as connection:
        decide(connection, made.id, accept=True, by="ann")
    with writing(store) as connection:
        assert decide(connection, made.id, accept=False, by="ann").state is State.ACCEPTED
        assert shelved(connection, State.REJECTED)
    with reading(store) as connection:
        assert shelved(connection, State.SHADOW) == []


def test_one_incident_against_it_is_enough_to_hold_it_back(store, confirmed):
    made = candidate()
    with writing(store) as connection:
        put(connection, made)
        for n in (1, 2):
            observe(connection, confirmed(OTHER.replace("4242", str(n))), "shared_fs_error")
        observe(connection, confirmed(OTHER.replace("4242", "3")), "tcp_network_failure")
        assert not shelved(connection)[0].ready


def test_a_later_correction_turns_support_around(store, confirmed):
    made = candidate()
    incidents = [confirmed(OTHER.replace("4242", str(n))) for n in (1, 2)]
    with writing(store) as connection:
        put(connection, made)
        for incident in incidents:
            record(connection, incident)
            confirm(connection, incident.id, said("shared_fs_error"))
            observe(connection, incident, "shared_fs_error")
        assert shelved(connection)[0].ready
        confirm(connection, incidents[0].id, said("tcp_network_failure"))
        (now,) = shelved(connection)
    assert (now.support, now.against) == ((incidents[1].id,), (incidents[0].id,))


def test_a_rule_whose_own_incident_was_corrected_is_not_ready(store, confirmed):
    incident = confirmed(OTHER)
    with writing(store) as connection:
        record(connection, incident)
        confirm(connection, incident.id, said("shared_fs_error"))
        put(connection, candidate(incident=incident.id))
        assert not shelved(connection)[0].against
        confirm(connection, incident.id, said("tcp_network_failure"))
        assert shelved(connection)[0].against == (incident.id,)


def said(leaf):
    return Confirmation(
        verdict="wrong", by="ann", time="2026-03-02T12:00:00.000Z", failure_type=leaf
    )
