"""A Slurm that answers for job 7, whose files lie in the folder of a test."""

import os

import pytest

from rerail.assistant.locate.slurm import SlurmLocator
from rerail.errors import ClusterError
from rerail.recovery.site_policy import JobLayout, SitePolicy
from rerail.tools.clusters.slurm_outputs import SEPARATOR
from rerail.tools.clusters.slurm_read import SlurmReader

START = 1_700_000_000
STEPS = "".join(f"step {i} loss {2.0 - i / 1000:.3f}\n" for i in range(1, 30))


class Slurm(SlurmReader):
    """Answers for a job that runs until a test says otherwise; `pause` is the time between two of its attempts."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.states, self.broken = folder, ["RUNNING"], None
        self.command, self.config = f"srun -o {folder}/task-%t.log python", ""
        self.shown, self.uid, self.pause = "7", os.geteuid(), 500
        self.script_of = {}  # by the command that tells it

    def _run(self, *argv):
        if self.broken is not None:
            raise self.broken
        if argv[:2] in (("sacct", "-B"), ("scontrol", "write")):
            return self.script_of.get(argv[0], "")
        if argv[:3] == ("scontrol", "show", "job"):
            return f"JobId=7 JobName=x\n   WorkDir={self.folder}\n   StdOut={self.folder}/slurm-7.out\n"
        if argv[0] == "sacct" and "-X" in argv:
            return f"{self.shown}|7|{self.states[-1]}\n" if self.states else ""
        if argv[0] == "sacct" and any("StdOut" in one for one in argv):
            raise ClusterError("Invalid field requested")
        if argv[0] == "sacct" and any("SubmitLine" in one for one in argv):
            row = f"7.0|7.0|n[1-2]|2||python||{self.command}"
            return row.replace("|", SEPARATOR) + "\n"
        if argv[0] == "sacct":
            return "".join(self.rows())
        return self.config if argv == ("scontrol", "show", "config") else ""

    def rows(self):
        for number, state in enumerate(self.states):
            start = START + (500 + self.pause) * number
            begin = "Unknown" if state == "PENDING" else start
            end = "Unknown" if state in ("RUNNING", "PENDING") else start + 500
            yield f"7|{state}|0:0|n[1-2]|{begin}|{end}|{self.uid}\n"


@pytest.fixture
def slurm(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "slurm-7.out").write_text("starting\n")
    (folder / "task-0.log").write_text(STEPS)
    return Slurm(folder)


@pytest.fixture
def asked(slurm, monkeypatch):
    """Jobs are asked for at this Slurm, and nowhere else; `layout` is what the site's policy names."""

    def here(layout=None):
        policy = SitePolicy(jobs=layout or JobLayout())
        locator = SlurmLocator(slurm, policy)
        monkeypatch.setattr(
            "rerail.assistant.locate.locator.BUILT_IN", (("slurm", lambda: locator),)
        )
        return slurm

    return here
