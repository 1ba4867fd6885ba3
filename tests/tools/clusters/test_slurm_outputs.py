"""Where a job and its steps write, from what Slurm 22.05 printed of real jobs, and from the options of its manual."""

import time

import pytest

from rerail.errors import ClusterError
from rerail.tools.clusters.command import run_command
from rerail.tools.clusters.slurm_outputs import SEPARATOR, options, outputs_of, read_rows
from rerail.tools.clusters.slurm_read import SlurmReader, checked_job
from rerail.tools.clusters.slurm_records import AttemptRecord
from rerail.tools.clusters.slurm_text import attempt_rows, job_paths

# sacct -n -P -D -j 1 of Slurm 22.05.8, for `sbatch -J tr -N2 --ntasks=2 job.sh` with two steps.
REAL = """\
1|1|n[1-2]||root|tr|/tmp/locjobs|sbatch -J tr -N2 --ntasks=2 job.sh
1.batch|1.batch|n1|1||batch||
1.extern|1.extern|n[1-2]|2||extern||
1.0|1.0|n[1-2]|2||bash||srun -o step-%j-%4t-%s.log -e err-%t.log --ntasks=2 -N2 bash -c echo $SLURM_PROCID
1.1|1.1|n[1-2]|2||hostname||srun -l --output=one.%J.%u.txt hostname
""".replace("|", SEPARATOR)
ARRAY = "6|2_2|n2||root|wrap|/tmp/locjobs|sbatch --array=1-3 -N1 --wrap echo a\nexit 1\n".replace(
    "|", SEPARATOR
)


def of(text, job="1", present=None, nodes=("n1", "n2"), script=""):
    rows = read_rows(text, later=False)
    return outputs_of(rows, present or {}, job=job, nodes=nodes, script=lambda: script)


def test_steps_name_their_own_files_task_by_task():
    found = of(REAL, present={"StdOut": "/x/main.out", "StdErr": "/x/main.out", "WorkDir": "/x"})
    assert list(found.paths()) == [
        *("/x/main.out", "/x/step-1-0000-0.log", "/x/step-1-0001-0.log"),
        *("/x/err-0.log", "/x/err-1.log", "/x/one.1.1.root.txt"),
    ]
    assert not found.guessed


def test_a_forgotten_job_is_found_by_its_script_or_by_the_default_which_is_said():
    scripted = of(REAL, script="Batch Script for 1\n---\n#!/bin/bash\n#SBATCH -o main-%x-%j.out\n")
    assert next(scripted.paths()) == "/tmp/locjobs/main-tr-1.out" and not scripted.guessed
    default = of(REAL)
    assert next(default.paths()) == "/tmp/locjobs/slurm-1.out" and default.guessed


def test_a_task_of_an_array_has_the_number_of_the_array_and_its_own():
    assert list(of(ARRAY, job="6").paths()) == ["/tmp/locjobs/slurm-2_2.out"]
    told = ARRAY.replace("--array=1-3", "-o out.%A.%3a.%j")
    assert list(of(told, job="6").paths()) == ["/tmp/locjobs/out.2.002.6"]


def test_where_a_node_stands_in_the_name_all_nodes_are_possible_for_a_task():
    text = REAL.replace("step-%j-%4t-%s.log", "%N/%t.log")
    (told,) = [one for one in of(text).told if one.pattern == "%N/%t.log"]
    assert told.files == (
        ("/tmp/locjobs/n1/0.log", "/tmp/locjobs/n2/0.log"),
        ("/tmp/locjobs/n1/1.log", "/tmp/locjobs/n2/1.log"),
    )


def test_without_a_task_in_the_name_each_node_has_a_file_by_its_place_or_its_short_name():
    (told,) = [
        one for one in of(REAL.replace("err-%t.log", "%j-%2n.log")).told if "%2n" in one.pattern
    ]
    assert told.files == (("/tmp/locjobs/1-00.log",), ("/tmp/locjobs/1-01.log",))
    text = REAL.replace("err-%t.log", "%N.log").replace("n[1-2]", "n[1-2].site.example")
    (told,) = [one for one in of(text).told if one.pattern == "%N.log"]
    assert told.files == (("/tmp/locjobs/n1.log",), ("/tmp/locjobs/n2.log",))
    # A node beside the task: the first of two tasks may stand on either node.
    (told,) = [
        one for one in of(REAL.replace("err-%t.log", "%n-%t.log")).told if "%n-" in one.pattern
    ]
    assert told.files[0] == ("/tmp/locjobs/0-0.log", "/tmp/locjobs/1-0.log")


def test_the_batch_script_itself_writes_on_the_first_node():
    text = "9|9|n[1-2]||ann|x|/w|sbatch -o %n-%N-%t.out run.sh\n".replace("|", SEPARATOR)
    assert list(of(text, job="9").paths()) == ["/w/0-n1-0.out"]


def test_the_file_of_errors_is_told_beside_the_other_one():
    found = of("", job="9", present={"StdOut": "/x/9.out", "StdErr": "/x/9.err", "WorkDir": "/x"})
    assert list(found.paths()) == ["/x/9.out", "/x/9.err"]


def test_of_a_requeued_job_only_the_steps_of_one_attempt_are_asked():
    # sacct -n -P -D of Slurm 22.05.8 after `scontrol requeue`: the script named its files after SLURM_RESTART_COUNT.
    text = "".join(
        f"1|1|n[1-2]||root|a|/w|sbatch -o main.out job.sh\n1.0|1.0|n[1-2]|2||bash||srun -o try-{n}-%t.log bash\n"
        for n in (0, 1)
    )
    rows = read_rows(text.replace("|", SEPARATOR), later=False)
    for number in (0, 1):
        found = outputs_of(rows, {}, job="1", nodes=("n1", "n2"), attempt=number)
        assert list(found.paths()) == ["/w/main.out", *(f"/w/try-{number}-{t}.log" for t in (0, 1))]
    # Accounting learns late of an attempt: until then the others tell where a job like this one writes.
    late = outputs_of(rows, {}, job="1", nodes=("n1", "n2"), attempt=2)
    assert "/w/try-1-0.log" in late.paths()


def test_later_versions_tell_the_pattern_themselves():
    row = "9|9|n1||ann|x|/home/ann|/home/ann/%x-%j.log|/home/ann/e|sbatch run.sh\n"
    rows = read_rows(row.replace("|", SEPARATOR), later=True)
    found = outputs_of(rows, {}, job="9", nodes=("n1",))
    assert list(found.paths()) == ["/home/ann/x-9.log", "/home/ann/e"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("srun -N2 -n 4 --mpi=pmix python train.py -o model.bin", []),
        ("srun -l -o a.log python train.py --output b", ["a.log"]),
        ("srun --output all --error=none hostname", []),
        ("srun -oa.log -e=b.log hostname", ["a.log", "b.log"]),
        ("srun --exclusive --output c hostname", ["c"]),
        ("srun -o 0 hostname", []),
    ],
)
def test_options_end_where_the_program_begins(line, named):
    assert options(line) == named


def test_a_backslash_switches_letters_off_and_unknown_ones_stay():
    text = REAL.replace("one.%J.%u.txt", r"a\%j.log").replace("err-%t.log", "e%q.log")
    assert "/tmp/locjobs/a%j.log" in of(text).paths()
    assert "/tmp/locjobs/e%q.log" in of(text).paths()


def test_of_an_array_the_block_of_the_task_is_read():
    text = "JobId=2 ArrayJobId=2\n   StdOut=/x/slurm-2_3.out\n\nJobId=6 ArrayJobId=2\n   StdOut=/x/slurm-2_2.out\n"
    assert job_paths(text.splitlines(), "2") == {"StdOut": "/x/slurm-2_3.out"}
    assert job_paths(text.splitlines(), "6") == {"StdOut": "/x/slurm-2_2.out"}


def test_the_table_of_one_attempt_holds_no_row_of_another():
    text = "JobIDRaw|State|ExitCode\n11|NODE_FAIL|0:0\n11.0|FAILED|1:0\n11|FAILED|2:0\n11.0|FAILED|2:0\n"
    second = attempt_rows(text, AttemptRecord("11", 1, "FAILED", ()))
    assert second == "JobIDRaw|State|ExitCode\n11|FAILED|2:0\n11.0|FAILED|2:0\n"


@pytest.mark.parametrize("job", ["4711", "4711_3", "4711+1"])
def test_ids_that_are_safe_on_a_command_line(job):
    assert checked_job(job) == job


@pytest.mark.parametrize("job", ["4711,1", "-x", "4711_", "4711+1_2", "٤٧"])
def test_other_ids_are_refused(job):
    with pytest.raises(Exception, match="no Slurm job id"):
        checked_job(job)


def test_a_command_that_leaves_a_child_with_the_pipe_is_not_waited_for():
    began = time.monotonic()
    with pytest.raises(ClusterError, match="no answer within"):
        run_command(["sh", "-c", "sleep 300 & sleep 300"], limit_s=0.5)
    assert time.monotonic() - began < 100


def test_without_the_later_fields_the_question_is_asked_again():
    asked = []

    class Old(SlurmReader):
        def _run(self, *argv):
            asked.append(argv)
            if argv[0] == "scontrol":
                raise ClusterError("Invalid job id specified")
            if "StdOut" in argv[-1]:
                raise ClusterError('sacct: error: Invalid field requested: "StdOut"')
            return REAL

    found = Old().outputs(AttemptRecord("1", 0, "FAILED", ("n1", "n2")))
    assert "/tmp/locjobs/step-1-0001-0.log" in found.paths()
    assert len([one for one in asked if one[0] == "sacct"]) == 3  # the script is asked for as well


@pytest.mark.parametrize(
    ("pattern", "told", "written"),
    [
        ("p%%j-%j.out", "/tmp/locjobs/p%6-6.out", "/tmp/locjobs/p%j-6.out"),
        ("l\\%j-x.log", "/tmp/locjobs/l\\6-x.log", "/tmp/locjobs/l%j-x.log"),
        ("b-%a-%b.log", "/tmp/locjobs/b-2-2.log", "/tmp/locjobs/b-2-%b.log"),
    ],
)
def test_the_command_line_is_believed_beside_what_the_controller_filled_in_twice(
    pattern, told, written
):
    text = ARRAY.replace("--array=1-3", f"-o {pattern}")
    present = {"StdOut": told, "StdErr": told, "WorkDir": "/tmp/locjobs"}
    for one in of(text, job="6", present=present).told:
        assert told.replace("\\", "") in one.files[0] and written in one.files[0]
    script = f"#!/bin/bash\n#SBATCH -o {pattern}\n"
    if "%" in told or "\\" in told:
        assert written in of(ARRAY, job="6", present=present, script=script).told[0].files[0]


def test_letters_of_arrays_in_the_name_of_a_job_that_is_none():
    text = REAL.replace("-J tr", "-o u-%a-%b-%j.log")
    (told,) = [one for one in of(text).told if one.whose == "the job"]
    assert "/tmp/locjobs/u-4294967294-%b-1.log" in told.files[0]
