"""The fleet view and `rerail report`: what is not known is said, and is never counted as zero."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rerail.assistant.presentation.fleet import MOST_ROWS, fleet_view
from rerail.assistant.presentation.fleet_words import fleet_sentences, types_words
from rerail.knowledge_base.store.clock import from_iso
from rerail.knowledge_base.store.incidents import IncidentRow
from rerail.knowledge_base.store.span import SpanIncident

RERAIL = Path(sys.executable).parent / "rerail"
DATA = Path(__file__).parents[1] / "data"
SINCE, UNTIL = "2026-03-01T00:00:00.000Z", "2026-03-08T00:00:00.000Z"


def failure(
    name, time="2026-03-02T10:00:00.000Z", leaf="gpu_fallen_off_bus", *, hours=None, nodes=(),
    reported=None, diagnosed="2026-03-02T10:05:00.000Z", **row,
):  # fmt: skip
    given = {
        "id": f"INC-{name}", "cluster": "a", "job": name, "attempt": 0, "recorded_at": diagnosed, "occurred_at": time,
        "outcome": "failure", "status": "established", "failure_type": leaf, "fingerprint": f"f-{leaf}", "entity": None,
        "confirmed": None, "confirmed_type": None, "signed_off_at": None, **row,
    }  # fmt: skip
    return SpanIncident(IncidentRow(**given), hours, tuple(nodes), reported, diagnosed)


def view(*found, since=SINCE, until=UNTIL, **more):
    ordered = sorted(found, key=lambda one: one.row.time)
    return fleet_view(ordered, since=since, until=until, **{"running_again": {}, **more})


def test_every_day_is_a_row_and_every_incident_in_one_category():
    made = view(
        failure("a"),
        failure("b", leaf="cuda_oom"),
        failure("c", "2026-03-04T23:59:59.000Z"),
        failure("d", "2026-03-04T00:00:00.000Z", None),
    )
    assert made.period == "day" and len(made.periods) == 8
    assert [row.incidents for row in made.periods] == [0, 2, 0, 2, 0, 0, 0, 0]
    assert made.periods[3].by_category == {"unknown": 1, "hardware_gpu": 1}
    assert [(one.id, one.incidents) for one in made.categories] == [
        ("hardware_gpu", 2), ("cuda_memory", 1), ("unknown", 1),
    ]  # fmt: skip
    assert sum(one.incidents for one in made.categories) == made.incidents == 4


def test_hours_that_nobody_knows_are_counted_apart():
    made = view(failure("a", hours=2.5), failure("b"), failure("c", leaf="cuda_oom"))
    assert (made.gpu_hours.hours, made.gpu_hours.known, made.gpu_hours.unknown) == (2.5, 1, 2)
    memory = next(one for one in made.categories if one.id == "cuda_memory")
    assert memory.gpu_hours.hours is None
    assert any("2.50, known for 1 of 3" in one for one in fleet_sentences(made))
    none = fleet_sentences(view(failure("b")))
    assert any(one.startswith("GPU-hours lost: not known (") for one in none)


def test_times_need_the_schedulers_word_and_a_restart_that_was_seen_to_work():
    end = "2026-03-02T10:00:00Z"
    made = view(
        failure("a", reported=end),
        failure("b", reported=end, diagnosed="2026-03-02T10:15:00.000Z"),
        failure("by hand"),
        failure("diagnosed before the event", reported="2026-03-02T11:00:00Z"),
        running_again={"INC-a": from_iso(end).timestamp() + 1800, "INC-by hand": 1.0},
    )
    told = made.time_to_diagnosis
    assert (told.mean_s, told.median_s, told.known, told.unknown) == (600.0, 600.0, 2, 2)
    again = made.time_to_recovery
    assert (again.mean_s, again.known, again.unknown) == (1800.0, 1, 3)
    assert any("mean 30 min, median 30 min, known for 1 of 4" in s for s in fleet_sentences(made))


def test_nodes_count_per_cluster_and_only_what_the_evidence_proves_is_established():
    made = view(
        failure("a", nodes=("n1", "n2")),
        failure("b", nodes=("n1",), status="hypothesis"),
        failure("c", nodes=("n1",), confirmed="wrong", confirmed_type="gpu_row_remap"),
        failure("d", nodes=("n1",), cluster="b"),
    )
    assert [(n.cluster, n.node, n.incidents, n.established) for n in made.nodes] == [
        ("a", "n1", 3, 1), ("a", "n2", 1, 1), ("b", "n1", 1, 1),
    ]  # fmt: skip
    mixed = view(*(failure(leaf, nodes=("n1",), leaf=leaf) for leaf in ("cuda_oom", "loss_nan", "host_hang", "dns_resolution_failure")))  # fmt: skip
    assert (
        types_words(mixed.nodes[0])
        == "GPU out of memory; loss or gradients not a number; host stood still and 1 more"
    )
    many = view(*(failure(str(i), nodes=(f"n{i}",)) for i in range(MOST_ROWS + 5)))
    assert len(many.nodes) == MOST_ROWS and many.node_count == MOST_ROWS + 5


def test_repeats_share_fingerprint_and_cause_and_two_unknowns_are_no_repeat():
    made = view(
        failure("a", "2026-03-02T00:00:00.000Z"),
        failure("b", "2026-03-03T00:00:00.000Z", job="a"),
        failure("c", "2026-03-04T00:00:00.000Z", confirmed="wrong", confirmed_type="cuda_oom"),
        failure("u", leaf=None), failure("v", leaf=None),
    )  # fmt: skip
    (one,) = made.repeats
    assert (one.incidents, one.jobs, one.latest) == (2, 1, ("INC-b", "INC-a"))
    assert (one.first[:10], one.last[:10], one.words) == ("2026-03-02", "2026-03-03", "GPU fallen off the PCIe bus")  # fmt: skip


def test_a_long_span_is_counted_by_week_from_its_first_incident():
    made = view(failure("a", "2025-10-08T00:00:00.000Z"), failure("b"), since="2020-01-01T00:00:00.000Z")  # fmt: skip
    assert made.period == "week" and made.periods[0].begins == "2025-10-06"
    assert made.periods[-1].begins == "2026-03-02" and len(made.periods) == 22
    short = view(failure("a"), since="2020-01-01T00:00:00.000Z")
    assert short.period == "day" and short.periods[0].begins == "2026-03-02"
    odd = view(failure("a", "1970-01-01T00:00:00.000Z"), failure("b"), since="1969-01-01T00:00:00.000Z")  # fmt: skip
    assert [row.begins for row in odd.periods] == ["1969-12-29", "2026-03-02"]


@pytest.fixture
def rerail(tmp_path):
    def run(*arguments, code=0):
        done = subprocess.run(
            [str(RERAIL), *map(str, arguments)], capture_output=True, text=True, timeout=120,
            env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data"), "COLUMNS": "80"}, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


def test_the_report_of_real_logs_fits_80_columns_and_its_json_says_the_same(rerail, tmp_path):
    event = {"job": {"job": "7"}, "state": "FAILED", "logs": [str(DATA / "faultlab" / "hang_one_rank")]}  # fmt: skip
    (tmp_path / "event.json").write_text(json.dumps(event))
    rerail("hook", tmp_path / "event.json")
    rerail("watch", "--once")
    rerail("diagnose", "-q", "--no-model", DATA / "faultlab" / "import_error")
    rerail("diagnose", "-q", "--no-model", DATA / "faultlab" / "healthy", code=3)
    text = rerail("report", "--since", "3650d")
    assert max(map(len, text.splitlines())) <= 80 and "\nTraceback" not in text
    body = json.loads(rerail("report", "--since", "3650d", "--json"))
    assert (body["incidents"], body["healthy"]) == (2, 1)
    assert body["time_to_diagnosis"]["known"] == 1 and body["time_to_diagnosis"]["mean_s"] < 120
    assert body["time_to_recovery"] == {"mean_s": None, "median_s": None, "known": 0, "unknown": 2}
    assert text.startswith("2 incidents from ") and "Time to recovery: not known" in text
    assert "Dependencies / imports / builds" in text and "NCCL / collective communication 1" in text


def test_an_empty_report_and_a_wrong_time_say_what_to_try(rerail):
    assert "rerail incidents" in rerail("report")
    assert "--since 30d" in rerail("report", "--since", "99999999999d", code=2)
