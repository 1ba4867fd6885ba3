"""`rerail diagnose 4711` as its user meets it: paths first, exit codes, a scheduler that hangs, a site's own locator."""

import json
import os
import stat
import subprocess
import sys
import time

import pytest

from rerail.assistant.locate import gather as gather_module
from rerail.assistant.locate.job_name import job_name
from rerail.errors import ClusterError

FAULT = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def run(*arguments, cwd, path="/nonexistent", before=""):
    code = f"{before}\nfrom rerail.assistant.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "diagnose", "--no-model", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PATH": path, "RERAIL_DATA_DIR": str(cwd / "data")},
        timeout=120,
        check=False,
    )


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_without_slurm_a_number_is_missing_evidence_and_says_where_to_ask(tmp_path):
    done = run("4711", cwd=tmp_path)
    assert done.returncode == 11
    assert "Slurm (sacct, scontrol) is not installed here" in done.stderr
    assert "rerail diagnose 4711" in done.stderr


def test_a_path_is_always_a_path_and_a_number_that_is_both_is_told(tmp_path):
    (tmp_path / "4711").write_text(FAULT)
    done = run("4711", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["first_fault"]["file"] == "4711"
    assert "slurm://4711 is the job of that number" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("4711", "4712"), 2, "one job at a time"),
        (("4711", "--follow"), 11, "Slurm (sacct, scontrol) is not installed here"),
        (("4711", "4712", "--follow"), 2, "one job at a time"),
        (("nobody://4711",), 11, "known: k8s, slurm"),
        (("k8s://ml",), 2, "k8s://namespace/job"),
    ],
)
def test_what_cannot_be_asked_is_said(tmp_path, arguments, code, said):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_a_scheduler_that_hangs_is_left_at_the_budget_with_exit_75(tmp_path):
    program(tmp_path, "sacct", "/bin/sleep 600 & exec /bin/sleep 600")
    began = time.monotonic()
    done = run("4711", "--locate-budget", "1", cwd=tmp_path, path=str(tmp_path))
    assert done.returncode == 75, done.stderr
    # However busy the machine is: the second begins with the question, not with what is loaded before it.
    assert "no answer within" in done.stderr
    assert time.monotonic() - began < 100  # and not the ten minutes that sacct takes


SITE = """
import importlib.metadata as metadata, io, sys, types
from rerail.assistant.locate.locator import Found, Item
class Lsf:
    def locate(self, job, attempt, budget):
        return Found(job, 0, [Item("lsf/out.log", b"%s")])
    def open(self, item, first=0, length=None):
        return io.BytesIO(item.key)
class Broken:
    def __init__(self):
        raise ValueError("no token")
sys.modules["site_lsf"] = types.SimpleNamespace(Lsf=Lsf, Broken=Broken)
own = [metadata.EntryPoint("lsf", f"site_lsf:{name}", "rerail.locators") for name in ("Broken", "Lsf")]
real = metadata.entry_points
metadata.entry_points = lambda **how: own if how.get("group") == "rerail.locators" else real(**how)
"""


def test_a_site_brings_its_own_locator_and_a_broken_one_is_left_out(tmp_path):
    done = run("lsf://99", "--json", cwd=tmp_path, before=SITE % FAULT.strip())
    found = json.loads(done.stdout)
    assert found["first_fault"]["file"] == "lsf/out.log"
    assert any("no token" in one["what"] for one in found["missing"])


def test_a_file_loads_nothing_of_the_search(tmp_path):
    (tmp_path / "train.log").write_text(FAULT)
    before = "import atexit, sys; atexit.register(lambda: print([m for m in sys.modules if 'locate' in m], file=sys.stderr))"
    done = run("train.log", "--no-store", cwd=tmp_path, before=before)
    assert "cuda_oom" in done.stdout
    assert [one for one in done.stderr.splitlines() if one.startswith("[")] == ["[]"]


def test_a_locator_of_the_site_that_does_not_keep_the_time_is_left_behind(monkeypatch):
    class Slow:
        def locate(self, job, attempt, budget):
            time.sleep(30)

        def open(self, item, first=0, length=None):
            raise AssertionError

    monkeypatch.setattr(gather_module, "locators_for", lambda scheme: ([Slow()], []))
    began = time.monotonic()
    with pytest.raises(ClusterError, match="locator Slow of this site: no answer within"):
        gather_module.gather(job_name("lsf://99"), 0.3)
    assert time.monotonic() - began < 10
