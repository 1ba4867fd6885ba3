"""Recorded output of real clusters of both generations, and text that a job forged."""

from pathlib import Path

import pytest

from rerail.errors import ClusterError
from rerail.tools.clusters.host_list import expand, is_node_name
from rerail.tools.clusters.slurm_json import read_sacct_json
from rerail.tools.clusters.slurm_text import job_paths, read_sacct, read_sinfo

DATA = Path(__file__).parents[2] / "data"


def recorded(name):
    return (DATA / "slurm_read" / f"{name}.json").read_text()


def text(fault):
    return read_sacct((DATA / "slurm" / fault / "sacct_dup.txt").read_text())


def test_text_tells_what_the_json_of_22_05_hides():
    [from_text] = text("exception")
    [from_json] = read_sacct_json(recorded("22.05_exception"))
    assert [one.exit_code for one in from_text.steps if one.step == "0"] == [1]
    # 22.05 prints SUCCESS for the failed step: reported as unknown, never as 0.
    assert [one.exit_code for one in from_json.steps if one.step == "0"] == [None]
    assert from_json.state == from_text.state == "FAILED"
    assert from_json.nodes == from_text.nodes == ("n1", "n2")


def test_newer_json_tells_exit_codes_itself():
    [failed] = read_sacct_json(recorded("24.11_exception"))
    assert {one.step: one.exit_code for one in failed.steps} == {"batch": 143, "extern": 0, "0": 1}
    [killed] = read_sacct_json(recorded("24.11_oom"))
    assert "OUT_OF_MEMORY" in {one.state for one in killed.steps}


def test_a_requeued_job_has_two_attempts_and_keeps_the_nodes_of_the_first():
    first, second = text("nodedown")
    assert (first.attempt, first.state, first.nodes) == (0, "NODE_FAIL", ("n2", "n3"))
    assert (second.attempt, second.state, second.nodes) == (1, "PENDING", ())
    both = read_sacct_json(recorded("22.05_nodedown"))
    assert [one.attempt for one in both] == list(range(len(both)))


def test_slurms_mark_of_an_out_of_memory_kill_is_kept():
    [job] = text("oom")
    assert [(one.exit_code, one.signal) for one in job.steps if one.step == "0"] == [(0, 125)]


def test_a_job_name_with_line_breaks_does_not_forge_paths():
    # As scontrol printed it on a real 22.05 for `sbatch -J $'x\n   NodeList=n4\n   StdOut=/etc/shadow'`
    shown = (
        "JobId=1 JobName=x\n   NodeList=n4\n   StdOut=/etc/shadow\n   UserId=root(0)\n"
        "   NodeList=n[1-2]\n   WorkDir=/home/ml\n   StdErr=/home/ml/o.txt\n   StdOut=/home/ml/o.txt\n"
    )
    assert job_paths(shown.splitlines())["StdOut"] == "/home/ml/o.txt"


def test_a_node_that_does_not_answer_is_lost_and_a_reason_may_hold_bars():
    nodes = {
        one.node: one
        for one in read_sinfo("n1|idle|Unknown|none\nn3|down*|179|a|b\nn4|drained|1|x\n")
    }
    assert nodes["n3"].lost and nodes["n3"].reason == "a|b"
    assert not nodes["n1"].lost and nodes["n1"].reason == ""
    assert nodes["n4"].drained and not nodes["n4"].lost


@pytest.mark.parametrize(
    ("compact", "names"),
    [
        ("n[1-3]", ("n1", "n2", "n3")),
        ("gpu[008-010,2],login", ("gpu008", "gpu009", "gpu010", "gpu2", "login")),
        ("r[1-2]c[1-2]", ("r1c1", "r1c2", "r2c1", "r2c2")),
        ("None assigned", ()),
    ],
)
def test_node_lists(compact, names):
    assert expand(compact) == names


@pytest.mark.parametrize("bad", ["n[1-", "n]1[", "n[1-99999999]", "n1;reboot", "--all", "n[a-b]"])
def test_a_malformed_or_hostile_node_list_is_an_error(bad):
    with pytest.raises(ClusterError):
        expand(bad)
    assert not is_node_name(bad)


@pytest.mark.parametrize("bad", ["", "[]", '{"jobs": [1]}', '{"jobs": [{"job_id": 1}]}'])
def test_json_that_is_not_sacct_is_an_error(bad):
    with pytest.raises(ClusterError):
        read_sacct_json(bad)
