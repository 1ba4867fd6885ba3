"""What counts as right in the launcher lab, and how the simpler ways are read."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rerail.errors import EvidenceError, UsageError
from rerail.evals.cli import app
from rerail.evals.launchers import command
from rerail.evals.launchers.launchers import BY_NAME as LAUNCHERS
from rerail.evals.launchers.scenarios import BY_NAME as SCENARIOS
from rerail.evals.launchers.scenarios import write_shards
from rerail.evals.launchers.score import Answer, keyword, score, torchrun_summary
from rerail.evals.launchers.truth import Truth, read_truths, truth_of

CRASH = Truth(("python_exception",), 3, (3,), "n2", ("n2", "10.0.0.12"), {"a.log": (7,)})
TABLE = """\
n2: Root Cause (first observed failure):
n2: [0]:
n2:   time      : 2026-11-22_15:50:{second}
n2:   host      : {host}
n2:   rank      : {rank} (local_rank: 1)
n2:   exitcode  : 1 (pid: 9456)
"""


def answer(**changed):
    told = {"failed": True, "leaf": "python_exception", "line": ("a.log", 7),
            "ranks": frozenset({3}), "hosts": frozenset({"n2"})}  # fmt: skip
    return Answer(**(told | changed))


def test_everything_right():
    one = score("l", "s", CRASH, answer())
    assert one.right
    assert one.columns == {
        "line": True, "type": True, "rank": True, "host": True, "wrong rank": False, "wrong host": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"ranks": frozenset({1})}, {"rank", "wrong rank"}),
        ({"ranks": frozenset({1, 3})}, {"rank", "wrong rank"}),
        ({"ranks": frozenset()}, {"rank"}),
        ({"hosts": frozenset({"n1"})}, {"host", "wrong host"}),
        ({"hosts": frozenset()}, {"host"}),
        ({"line": ("a.log", 8)}, {"line"}),
        ({"leaf": "loss_nan"}, {"type"}),
    ],
)
def test_naming_another_is_worse_than_naming_nobody(changed, wrong):
    one = score("l", "s", CRASH, answer(**changed))
    assert not one.right
    found = {c for c, right in one.columns.items() if right is c.startswith("wrong")}
    assert found == wrong


def test_an_address_of_the_host_is_the_host():
    assert score("l", "s", CRASH, answer(hosts=frozenset({"10.0.0.12"}))).right


def test_a_healthy_run_asks_for_nothing_but_silence():
    healthy = Truth((), None, (), None, (), {})
    assert score("l", "s", healthy, answer(failed=False)).right
    assert not score("l", "s", healthy, answer()).right


def test_the_earliest_table_of_several_agents_counts(tmp_path):
    (tmp_path / "a.log").write_text(TABLE.format(second=59, host="n1", rank=0))
    (tmp_path / "b.log").write_text(TABLE.format(second=28, host="n2", rank=3))
    said = torchrun_summary(tmp_path)
    assert (said.ranks, said.hosts) == ({3}, {"n2"})


def test_keywords_know_a_line_and_nothing_else(tmp_path):
    (tmp_path / "a.log").write_text("step 1\nerror: one\nstep 2\nerror: two\n")
    assert keyword(tmp_path, last=False).line == ("a.log", 2)
    assert keyword(tmp_path, last=True).line == ("a.log", 4)
    assert set(score("l", "s", CRASH, keyword(tmp_path, last=True)).columns) == {"line"}


def test_the_truth_takes_the_best_lines_that_there_are():
    oom = SCENARIOS["oom"]
    logs = {
        "a.log": "exitcode  : -9 (pid: 5)\n",
        "dmesg.txt": "x\nMemory cgroup out of memory: Killed process 5 (python)\n",
    }
    truth = truth_of(LAUNCHERS["torchrun"], oom, logs, "cn0412", "10.77.31.12")
    assert truth["lines"] == {"dmesg.txt": [2]}
    assert (truth["rank"], truth["host"]) == (3, "cn0412")
    only = truth_of(LAUNCHERS["kubectl"], oom, {"a.log": logs["a.log"]}, "w-1", "10.77.31.12")
    assert only["lines"] == {"a.log": [1]}


def test_faults_lie_in_data_and_arguments(tmp_path):
    write_shards(tmp_path / "data", 4)
    SCENARIOS["crash"].prepare(tmp_path)
    rows = (tmp_path / "data/shard_0003.jsonl").read_text().splitlines()
    assert sum("tokens" not in json.loads(row) for row in rows) == 1
    assert all(
        "tokens" in row for row in (tmp_path / "data/shard_0002.jsonl").read_text().splitlines()
    )


def test_no_recordings_and_no_such_launcher(tmp_path):
    with pytest.raises(EvidenceError, match=r"truth\.json"):
        read_truths(tmp_path)
    with pytest.raises(UsageError, match="slurmrun"):
        command.remake(["slurmrun"], tmp_path, tmp_path)


def test_the_command_prints_counts():
    done = CliRunner().invoke(app, ["launchers", "mpich", "--json"])
    told = json.loads(done.stdout)
    assert set(told["launchers"]) == {"mpich"}
    assert told["ways"]["first keyword"]["asked"]["line"] == 6
