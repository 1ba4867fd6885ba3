"""Where libraries leave evidence that Slurm knows nothing of: each place by itself, and no other job's."""

import os
import threading
from types import SimpleNamespace

import pytest

from rerail.assistant.locate import places
from rerail.assistant.locate import slurm as slurm_module
from rerail.assistant.locate.gather import gather
from rerail.assistant.locate.job_name import job_name
from rerail.recovery.site_policy import JobLayout

START, END = 1_700_000_000, 1_700_000_500  # of the job of conftest.py
ELASTIC = "torchelastic log folders"
FLIGHT = "flight-recorder dumps"
DEBUG = "torch.distributed.debug dumps"
INSPECTOR = "NCCL Inspector dumps"


@pytest.fixture
def look(asked, monkeypatch, tmp_path):
    """Diagnose job 7 of a user whose home lies in the folder of the test; returns names of files, and what was in vain."""
    slurm, home = asked(), tmp_path / "home"
    slurm.states = ["FAILED"]
    user = SimpleNamespace(pw_name="ann", pw_dir=str(home))
    monkeypatch.setattr(slurm_module, "pwd", SimpleNamespace(getpwuid=lambda uid: user))

    def run():
        with gather(job_name("7"), 20.0) as found:
            names = {one.name for one in found.evidence.sources}
        return names, {one.subject: one.why for one in found.evidence.problems}

    return run


def written(path, at=END - 10):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
    os.utime(path, (at, at))
    return str(path)


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (ELASTIC, "logs/none_k3f0x2/attempt_0/3/stderr.log"),  # of the option --log-dir
        (ELASTIC, "7_k3f0x2/attempt_1/0/stdout.log"),
        (ELASTIC, "elastic/7_k3f0x2/attempt_0/3/stderr.log"),
        (FLIGHT, "nccl_trace_rank_3"),
        (FLIGHT, "dumps/nccl_trace_rank_3"),
        (FLIGHT, "comm_lib_trace_rank_3"),
        (FLIGHT, "dumps/comm_lib_trace_rank_3"),
        (DEBUG, "stacks_20261120_234544.txt"),
        (DEBUG, "debug/stacks_20261120_234544.txt"),
        (DEBUG, "fr_trace_20261120_234544.txt"),
        (DEBUG, "debug/fr_trace_20261120_234544.txt"),
        (DEBUG, "pyspy_dump_20261120_234544.txt"),
        (DEBUG, "debug/pyspy_dump_20261120_234544.txt"),
        (INSPECTOR, "nccl-inspector-7/n2-pid3120.log"),
        (INSPECTOR, "run/nccl-inspector-7/n2-pid3120.log"),
    ],
)
def test_each_place_in_the_folder_of_a_job_is_looked_at(look, slurm, what, name):
    slurm.command = "srun torchrun --nnodes 2 --log-dir logs train.py"
    _, before = look()
    assert any(what in one for one in before)
    path = written(slurm.folder / name)
    found, missing = look()
    assert path in found
    assert what not in " ".join(missing)


@pytest.mark.parametrize("teller", ["sacct", "scontrol"])
@pytest.mark.parametrize(
    ("lines", "folder"),
    [
        ("torchrun --log-dir elastic train.py", "job/elastic"),
        (
            "torchrun --rdzv-id=x \\\n  --log-dir=elastic/$SLURM_JOB_ID \\\n  train.py",
            "job/elastic/7",
        ),
        ('export LOGS="$HOME/a b"  # ours\ntorchrun --log-dir "${LOGS}/x" train.py', "home/a b/x"),
        ("cd runs\nsrun torchrun --log_dir one train.py", "job/runs/one"),
        ("torchrun --log-dir ~/one train.py", "home/one"),
    ],
)
def test_the_folder_that_the_batch_script_names_is_looked_at(
    look, slurm, tmp_path, teller, lines, folder
):
    slurm.command = "sbatch train.sh"
    path = written(tmp_path / folder / "none_k3f0x2/attempt_0/3/stderr.log")
    assert path not in look()[0]
    slurm.script_of[teller] = f"#!/bin/bash\n#SBATCH -N 2\n{lines}\n"
    found, missing = look()
    assert path in found
    assert ELASTIC not in " ".join(missing)


@pytest.mark.parametrize(
    "lines",
    [
        "# torchrun --log-dir elastic train.py",
        "torchrun --log-dir $SCRATCH/elastic train.py",
        "torchrun --log-dir `pwd`/elastic train.py",
        "a=aaaaaaaa\n" + "a=$a$a$a$a\n" * 60 + "torchrun --log-dir $a train.py",
        "echo 'it is\nnot closed",
    ],
)
def test_a_script_that_names_no_folder_is_no_harm(look, slurm, lines):
    path = written(slurm.folder / "elastic/none_k3f0x2/attempt_0/3/stderr.log")
    slurm.command = "sbatch train.sh"
    slurm.script_of["sacct"] = f"#!/bin/bash\n{lines}\n"
    assert path not in look()[0]


def test_of_a_folder_that_a_script_names_only_the_user_s_own_files_of_the_job_s_time_are_read(
    look, slurm, tmp_path
):
    slurm.command, slurm.script_of["sacct"] = (
        "sbatch train.sh",
        f"#!/bin/bash\ntorchrun --log-dir {tmp_path}/all train.py\n",
    )
    early = written(tmp_path / "all/x_1/attempt_0/0/stderr.log", at=START - 3600)
    own = written(tmp_path / "all/x_2/attempt_0/0/stderr.log")
    found, _ = look()
    assert own in found and early not in found
    slurm.uid += 1
    assert own not in look()[0]


@pytest.mark.parametrize(
    "name",
    ["8_k3f0x2/attempt_0/3/stderr.log", "nccl-inspector-8/n2.log", "nccl-inspector-77/n2.log"],
)
def test_what_is_named_after_another_job_is_not_read(look, slurm, name):
    path = written(slurm.folder / name)
    assert path not in look()[0]


def test_what_the_policy_names_in_vain_is_said(look, asked, slurm):
    asked(JobLayout(logs=("{folder}/out/*.log",)))
    assert look()[1][f"logs of the job: {slurm.folder}/out/*.log"] == "none is there"
    path = written(slurm.folder / "out/rank3.log")
    found, missing = look()
    assert path in found
    assert "logs of the job" not in " ".join(missing)


def test_what_was_written_before_the_job_began_is_not_read(look, slurm):
    path = written(slurm.folder / "nccl_trace_rank_0", at=START - 3600)
    assert path not in look()[0]


@pytest.mark.parametrize(
    ("at", "read"), [(START - 3600, False), (END - 1, True), (END + 30, True), (END + 3600, False)]
)
def test_dumps_in_the_home_are_read_where_they_are_of_the_job_s_time(look, tmp_path, at, read):
    # PyTorch 2.13 writes there where no variable names another place, whichever job it is of.
    path = written(tmp_path / "home/.cache/torch/comm_lib_trace_rank_3", at)
    found, missing = look()
    assert (path in found) is read
    if not read:
        (why,) = [why for what, why in missing.items() if FLIGHT in what]
        assert f"{tmp_path}/home/.cache/torch" in why


def test_tmp_is_looked_at_on_a_node_of_the_job_only(look, slurm, tmp_path, monkeypatch):
    own = tmp_path / "places.yaml"
    own.write_text(places.FILE.read_text().replace('"/tmp/', f'"{tmp_path}/node/'))
    monkeypatch.setattr(places, "FILE", own)
    made = [
        written(tmp_path / "node" / name)
        for name in (
            "torchelastic_ab12/none_x/attempt_0/3/stderr.log",
            "nccl_trace_rank_3",
            "comm_lib_trace_rank_3",
        )
    ]
    later = written(tmp_path / "node/nccl_trace_rank_4", at=END + 3600)
    monkeypatch.setattr("socket.gethostname", lambda: "n2.site.example")
    found, _ = look()
    assert set(made) <= found
    assert later not in found
    monkeypatch.setattr("socket.gethostname", lambda: "login1")
    found, missing = look()
    assert not set(made) & found
    assert not any("/tmp here" in why for why in missing.values())


def test_what_the_debug_server_of_pytorch_writes_is_found(look, slurm):
    """The names are PyTorch's own, and its dumper writes the files."""
    pytest.importorskip("torch")
    frontend = pytest.importorskip("torch.distributed.debug._frontend")
    handlers = pytest.importorskip("torch.distributed.debug._debug_handlers")
    round_over = threading.Event()

    class Dump:
        def __init__(self, handler):
            self.dump_filename = handler.dump_filename

        def dump(self):
            return "=== Rank 0: http://n1:1/handler/x ===\n"

    class Last:
        def dump(self):
            round_over.set()

    wanted = {"stacks", "pyspy_dump", "fr_trace"}
    ours = [one for one in handlers.default_handlers() if one.dump_filename() in wanted]
    assert {one.dump_filename() for one in ours} == wanted
    folder = slurm.folder / "debug"
    slurm.states = ["RUNNING"]
    dumper = frontend.PeriodicDumper([*map(Dump, ours), Last()], str(folder), 600.0)
    dumper.start()
    assert round_over.wait(60)
    dumper.stop()
    found, missing = look()
    assert {str(one) for one in folder.iterdir()} <= found
    assert len(list(folder.iterdir())) == len(wanted)
    assert DEBUG not in " ".join(missing)


def test_a_run_that_no_name_ties_to_the_job_is_named_and_not_read(look, slurm):
    slurm.command = "sbatch train.sh"
    path = written(slurm.folder / "elastic/big_ab12cd34/attempt_0/3/stderr.log")
    written(slurm.folder / "elastic/old_ab12cd34/attempt_0/3/stderr.log", at=START - 3600)
    written(slurm.folder / "elastic/next_ab12cd34/attempt_0/3/stderr.log", at=END + 3600)
    written(slurm.folder / "elastic/8_ab12cd34/attempt_0/3/stderr.log")
    found, missing = look()
    assert path not in found
    told = {what: why for what, why in missing.items() if ELASTIC in what}
    assert list(told) == [f"{ELASTIC}: {slurm.folder}/elastic/big_ab12cd34"]
    assert "no name tells whose it is" in told[f"{ELASTIC}: {slurm.folder}/elastic/big_ab12cd34"]
