"""The record as its user meets it: one incident for one failure, found again, judged, signed off."""

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rerail.assistant.cli.incidents import incidents_command
from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.record import make_incident
from rerail.settings import load_settings

RERAIL = Path(sys.executable).parent / "rerail"
XID = (
    "[Sun Mar  1 02:59:5{n} 2026] gpu-7 kernel: NVRM: Xid (PCI:0000:8d:00): 79, pid=4711, "
    "name=python, GPU has fallen off the bus.\n"
)


@pytest.fixture
def rerail(tmp_path):
    def run(*arguments, **environment):
        return subprocess.run(
            [str(RERAIL), *map(str, arguments)], capture_output=True, text=True, timeout=120,
            env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data"), **environment}, check=False,
        )  # fmt: skip

    return run


def dmesg(folder, number):
    path = folder / f"{number}" / "dmesg-gpu-7.log"
    path.parent.mkdir()
    path.write_text(XID.format(n=number))
    return path


def test_the_same_logs_are_one_incident_wherever_they_lie(rerail, tmp_path):
    first = json.loads(rerail("diagnose", "--json", dmesg(tmp_path, 1)).stdout)["incident"]
    moved = tmp_path / "elsewhere.log"
    moved.write_text(XID.format(n=1))
    assert json.loads(rerail("diagnose", "--json", moved).stdout)["incident"] == first
    other = json.loads(rerail("diagnose", "--json", dmesg(tmp_path, 2)).stdout)["incident"]
    assert other != first
    listed = json.loads(rerail("incidents", "--json").stdout)
    assert {row["id"] for row in listed} == {first, other}
    assert "same cause" in rerail("similar", first).stdout


def test_a_job_is_one_incident_while_its_evidence_grows(rerail, tmp_path):
    one, two = dmesg(tmp_path, 1), dmesg(tmp_path, 2)
    names = {
        json.loads(rerail("diagnose", "--json", "--job", "918", *paths).stdout)["incident"]
        for paths in ([one], [one, two])
    }
    again = rerail("diagnose", "--json", "--job", "918", "--attempt", "1", one)
    assert len(names) == 1 and json.loads(again.stdout)["incident"] not in names


def test_the_third_failure_of_a_node_is_said_in_the_diagnosis(rerail, tmp_path):
    says = []
    for number in (1, 2, 3):
        body = json.loads(rerail("diagnose", "--json", dmesg(tmp_path, number)).stdout)
        assert body["suspects"]["nodes"] == ["gpu-7"]
        says.append([h["says"] for h in body["history"]])
        if number == 1:
            rerail("incidents")  # from here on there is a database
    assert says[2] == ["third failure of gpu-7 in 7 days"]
    assert "HISTORY" in rerail("show", "last").stdout


def test_confirm_show_timeline_sign_off(rerail, tmp_path):
    rerail("diagnose", dmesg(tmp_path, 1))
    assert rerail("signoff", "last").returncode == 2
    assert rerail("confirm", "last", "--verdict", "right", "--by", "ann").returncode == 0
    assert rerail("signoff", "last", "--by", "ann", "--resolution", "RMA").returncode == 0
    shown = rerail("show", "last").stdout
    assert "gpu_fallen_off_bus" in shown and "signed off: RMA" in shown
    assert "fallen off the bus" in rerail("show", "last", "--evidence", "e1").stdout
    assert "human ann confirmed" in rerail("timeline", "last").stdout
    assert rerail("show", "last", "--evidence", "E99").returncode == 2


def test_a_store_that_cannot_be_written_is_a_banner(rerail, tmp_path):
    (tmp_path / "data").write_text("in the way")
    done = rerail("diagnose", "--json", dmesg(tmp_path, 1))
    assert done.returncode == 0 and json.loads(done.stdout)["incident"] is None
    assert "not stored" in done.stderr and "Traceback" not in done.stderr
    assert rerail("incidents").returncode == 74


def test_nothing_is_kept_on_demand(rerail, tmp_path):
    log = dmesg(tmp_path, 1)
    for wish in (["--no-store"], ["--rank", "0"]):
        done = rerail("diagnose", "--json", *wish, log)
        assert json.loads(done.stdout)["incident"] is None and not (tmp_path / "data").exists()


def test_a_run_without_a_failure_is_kept_and_listed_on_demand(rerail, tmp_path):
    (tmp_path / "ok.log").write_text("step 1 loss 2\nstep 2 loss 1\nTraining completed.\n")
    name = json.loads(rerail("diagnose", "--json", tmp_path / "ok.log").stdout)["incident"]
    assert "1 diagnosis without a failure not shown" in rerail("incidents").stdout
    assert json.loads(rerail("incidents", "--json").stdout) == []
    assert (
        name in rerail("incidents", "--all").stdout and "NO FAILURE" in rerail("show", name).stdout
    )
    assert "nothing to compare" in rerail("similar", name).stdout
    missed = ("--verdict", "wrong", "--type", "loss_divergence", "--line", "ok.log:2")
    assert rerail("confirm", name, *missed).returncode == 0
    assert [i["id"] for i in json.loads(rerail("incidents", "--json").stdout)] == [name]
    assert rerail("confirm", name, "--verdict", "wrong", "--type", "no_failure").returncode == 0
    assert json.loads(rerail("incidents", "--json").stdout) == []


def test_a_correction_takes_the_sign_off_and_its_case_back(rerail, tmp_path):
    rerail("diagnose", dmesg(tmp_path, 1))
    rerail("confirm", "last", "--verdict", "right", "--by", "ann")
    rerail("signoff", "last", "--by", "ann")
    cases = tmp_path / "data" / "cases.jsonl"
    assert cases.read_text().count("gpu_fallen_off_bus")
    rerail("confirm", "last", "--verdict", "right", "--by", "eve")
    assert cases.read_text()  # the same word again takes nothing back
    said = rerail(
        "confirm", "last", "--verdict", "wrong", "--type", "gpu_pcie_error", "--by", "eve"
    )
    assert "no longer in force" in said.stdout and not cases.read_text()
    lines = rerail("timeline", "last").stdout
    assert "signed_off" in lines and "sign_off_lapsed" in lines
    assert "signed off" not in rerail("incidents").stdout
    rerail("signoff", "last", "--by", "eve")
    assert "gpu_pcie_error" in cases.read_text() and "signed off" in rerail("incidents").stdout


def test_right_does_not_go_with_another_type(rerail, tmp_path):
    rerail("diagnose", dmesg(tmp_path, 1))
    said = rerail("confirm", "last", "--type", "cuda_oom")
    assert said.returncode == 2 and "--verdict wrong --type cuda_oom" in said.stderr
    assert rerail("confirm", "last", "--type", "gpu_fallen_off_bus").returncode == 0
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "cases.jsonl").write_text("[]\n")
    said = rerail("signoff", "last")
    assert said.returncode == 74 and "is no case" in said.stderr


def test_the_regression_case_keeps_files_apart(rerail, tmp_path):
    """A kernel line among a job's steps would be something that training survived."""
    folder = tmp_path / "job"
    folder.mkdir()
    steps = "".join(f"2026-03-01 03:00:{s:02d} step {s} loss 2.{s}\n" for s in range(10, 40))
    (folder / "train.log").write_text(
        steps + "RuntimeError: CUDA error: unspecified launch failure\n"
    )
    (folder / "dmesg-n7.log").write_text(
        "[Sun Mar  1 03:00:39 2026] n7 kernel: NVRM: Xid (PCI:0000:8d:00): 79, pid=47, name=python, "
        "GPU has fallen off the bus.\n"
    )
    rerail("diagnose", folder)
    rerail("confirm", "last", "--verdict", "right")
    said = rerail("signoff", "last").stdout
    case = json.loads((tmp_path / "data" / "cases.jsonl").read_text())
    assert [name for name, _ in case["parts"]] == ["dmesg-n7.log", "train.log"]
    assert sum(count for _, count in case["parts"]) == case["log"].count("\n")
    assert "does not hold" not in said
    done = rerail("eval", "cases", tmp_path / "data" / "cases.jsonl", "--no-rewrites", "--json")
    assert json.loads(done.stdout)["wrong"] == []


def test_a_case_that_the_rules_do_not_pass_is_told(rerail, tmp_path):
    rerail("diagnose", dmesg(tmp_path, 1))
    rerail("confirm", "last", "--verdict", "wrong", "--type", "gpu_pcie_error")
    assert "the rules say gpu_fallen_off_bus" in rerail("signoff", "last").stdout


def test_what_is_kept_is_private_bounded_and_redacted(rerail, tmp_path):
    log = tmp_path / "job.log"
    secret = "hf_" + "a1B2c3D4" * 5
    body = [f"HF_TOKEN={secret} \x1b]0;owned\x07 line {i} {'word ' * 80}" for i in range(2000)]
    log.write_text("\n".join([*body, "torch.OutOfMemoryError: CUDA out of memory."]) + "\n")
    rerail("diagnose", log)
    (kept,) = (tmp_path / "data" / "inbox").glob("*.json")
    text = kept.read_text()
    assert secret not in text and "owned" not in text and len(text) < 400_000
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_the_snapshot_holds_series_ranks_and_versions(job):
    steps = "".join(f"[rank0]: step {i} loss {9 / i:.3f} step_time 0.25s\n" for i in range(1, 1500))
    folder = job(
        "NCCL version 2.21.5+cuda12.4\n" + steps + "torch.OutOfMemoryError: CUDA out of memory.\n"
    )
    snapshot = make_incident(diagnose_paths([folder]), [folder]).snapshot
    assert snapshot.versions["nccl"] == "2.21.5+cuda12.4"
    series = {one.name: one for one in snapshot.series}
    assert series["loss"].step[-1] == 1499 and len(series["loss"].step) == 600
    assert set(series["step_time_s"].value) == {0.25}
    assert [r.last_step for r in snapshot.ranks if r.rank == 0] == [1499]


def test_a_plan_without_a_scheduler_s_word_drains_nothing(rerail, tmp_path):
    name = json.loads(rerail("diagnose", "--json", "--job", "918", dmesg(tmp_path, 1)).stdout)
    shown = rerail("plan", name["incident"], "--json")
    plan = json.loads(shown.stdout)

    assert shown.returncode == 0
    assert {action["kind"] for action in plan["actions"]} <= {"notify", "ticket"}
    assert any("not in the job's allocation" in why for why in plan["refusals"])
    assert json.loads(rerail("plan", name["incident"], "--json").stdout)["id"] == plan["id"]
    assert "asked for; no scheduler event" in rerail("timeline", name["incident"]).stdout
    assert rerail("plan", "INC-nosuch").returncode == 2


def test_the_list_says_what_happened_and_fits_a_narrow_terminal(rerail, tmp_path, monkeypatch):
    words = " ".join(f"w{n:02}" for n in range(40))
    log = tmp_path / "train.log"
    log.write_text(f"[rank1] RuntimeError: {words}\n")
    rerail("diagnose", "--job", "4711", log)
    piped = rerail("incidents").stdout.splitlines()
    assert piped[0].endswith("SUPPORTED  job 4711") and len(piped) == 2
    assert (
        piped[1].startswith("    Rank 1 raised RuntimeError: w00")
        and "[python_exception]" in piped[1]
    )
    monkeypatch.setenv("RERAIL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", shown := Terminal())
    load_settings.cache_clear()
    try:
        incidents_command(
            since=None, failure_type=None, node=None, job=None, everything=False, limit=5,
            json_output=False,
        )  # fmt: skip
    finally:
        load_settings.cache_clear()
    rows = shown.getvalue().splitlines()
    assert max(map(len, rows)) <= 80
    assert " ".join(" ".join(rows).split()) == " ".join(" ".join(piped).split())


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self):
        return True
