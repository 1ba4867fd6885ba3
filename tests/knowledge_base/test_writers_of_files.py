"""Who wrote what, where files, records of loggers and threads tell it and no label does."""

from __future__ import annotations

import json

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.log_parsers.ranks_of_files import (
    hosts_by_folders,
    hosts_by_ranks,
    own_ranks,
    ranks_across_hosts,
)

GAVE_UP = "gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 9000ms for recv operation to complete"
GLOO = f"RuntimeError: [/pytorch/third_party/gloo/{GAVE_UP}"
TRACE = 'Traceback (most recent call last):\n\n> File "fit.py", line 7, in <module>\n    fit()\n\n'
TRACE += '  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 90, in all_reduce\n    work.wait()\n\n'


def verdict(files):
    return diagnose_texts(files).diagnosis


def greeting(rank, host):
    return f"2026-03-02 10:00:00.100 | INFO | r{rank} | fit:9 - rank {rank} of 4 on {host}, pid {900 + rank}\n"


def failed(rank):
    return (
        f"2026-03-02 10:00:30.1 | ERROR | r{rank} | fit:12 - stopped by an error\n{TRACE}{GLOO}\n"
    )


def test_the_traceback_below_a_record_of_an_error_is_of_the_rank_of_the_record():
    first = "".join([greeting(0, "bx-1"), greeting(1, "bx-1"), failed(1), failed(0)])
    second = "".join([greeting(2, "bx-2"), greeting(3, "bx-2"), failed(2)])
    found = verdict({"bx-1.log": first, "bx-2.log": second})
    assert (found.suspects.ranks, found.suspects.nodes) == ([3], ["bx-2"])


def test_what_a_launcher_raises_below_a_record_of_an_error_is_of_no_rank():
    agent = 'Traceback (most recent call last):\n  File "/v/torch/distributed/launcher/api.py", line 3, in launch\n'
    agent += "    raise KeyError(name)\nKeyError: 'name'\n"
    log = greeting(0, "bx-1") + "2026-03-02 10:00:30.1 | ERROR | r0 | fit:12 - x\n" + agent
    found = verdict({"bx-1.log": log})
    assert found.first_fault is None or found.first_fault.rank != 0


def record(rank, event, **more):
    return (
        json.dumps({"event": event, "worldRank": rank, "nodename": "bx-1", "level": "info", **more})
        + "\n"
    )


def test_records_tell_their_writers_where_a_launcher_prints_among_them():
    steps = "".join(record(rank, f"step {step} read") for step in range(4) for rank in (0, 1, 2))
    raised = [{"exc_type": "IndexError", "exc_value": "'5'", "frames": []}]
    died = record(2, "training failed", level="error", exception=raised)
    launcher = "".join(f"W0302 10:00:00.1 4 launch.py:{line}] waits\n" for line in range(40))
    found = verdict({"job.log": launcher + steps + died})
    assert found.failure_type == "python_exception"
    assert found.suspects.ranks == [2]


def test_an_exception_in_a_record_that_says_that_it_is_skipped_is_no_fault():
    raised = [{"exc_type": "IndexError", "exc_value": "'5'", "frames": []}]
    log = record(2, "sample 5 is broken, skipping it", level="error", exception=raised)
    found = verdict(
        {"job.log": "".join(record(2, f"step {n}/9 loss 1.{9 - n}") for n in range(9)) + log}
    )
    assert found.failure_type in (None, "no_failure")


def test_files_of_local_ranks_are_of_the_ranks_that_they_call_themselves():
    said = [[b"trainer 2 of 4 on n2"], [b"trainer 3 of 4 on n2"], [b"no word"]]
    files = [("n2", 0, said[0]), ("n2", 1, said[1]), ("n1", 0, said[2])]
    assert own_ranks(files) == [2, 3, None]


@pytest.mark.parametrize(
    "said",
    [
        ([b"worker 1 of 4"], [b"worker 1 of 4"]),  # both say the same
        ([b"worker 2 of 4"], [b"worker 3 of 8"]),  # of two worlds
        ([b"worker 3 of 4"], [b"worker 2 of 4"]),  # not in the order of the local ranks
    ],
)
def test_numbers_that_do_not_fit_the_local_ranks_are_no_ranks(said):
    assert own_ranks([("n1", local, lines) for local, lines in enumerate(said)]) == [None, None]


def labelled(*ranks):
    return [b"[rank%d]: hello" % rank for rank in ranks]


def test_files_that_hold_all_ranks_between_them_are_called_after_hosts():
    files = [("logs/lab-a.log", labelled(0, 1)), ("logs/lab-b.log", labelled(2, 3))]
    assert hosts_by_ranks(files) == {"logs/lab-a.log": "lab-a", "logs/lab-b.log": "lab-b"}


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (("lab-a.log", "lab-b.log"), ((0, 1), (0, 1))),  # two runs
        (("lab-a.log", "lab-b.log"), ((0, 1), (4, 5))),  # others are missing
        (("lab-a.log", "lab-b.log"), ((0,), (1,))),  # files of ranks
        (("run-a.log", "run-b.log"), ((0, 1), (2, 3))),
        (("out1.log", "out2.log"), ((0, 1), (2, 3))),
    ],
)
def test_other_files_are_not(names, ranks):
    files = [(name, labelled(*held)) for name, held in zip(names, ranks, strict=True)]
    assert hosts_by_ranks(files) == {}


def test_the_process_that_the_kernel_killed_is_the_first_thread_in_front_of_the_lines_of_a_rank():
    def log(rank, first, last):
        return "".join(
            f"I0302 10:00:0{n}.000001 {thread} store.cc:1{n}] at work, rank {rank} of 2\n"
            for n, thread in enumerate((first, first + 40, first))
        ) + last  # fmt: skip

    kernel = "[99.5] Memory cgroup out of memory: Killed process 5102 (python) total-vm:9kB, anon-rss:9kB\n"
    paddle = "RuntimeError: [/paddle/third_party/gloo/gloo/transport/tcp/pair.cc:584] TIMEOUT self_rank = 0\n"
    found = verdict(
        {
            "bx-1/rank_0.log": log(0, 4102, paddle),
            "bx-1/rank_1.log": log(1, 5102, ""),
            "dmesg-bx-1.txt": kernel,
        }
    )
    assert found.suspects.ranks == [1]


KEY = "Traceback (most recent call last):\n  File \"/w/fit.py\", line 7, in <module>\n    fit()\nKeyError: 'label'\n"


def steps(count=3):
    return "".join(f"2026-03-02 10:00:0{n} INFO step {n} loss 2.{n}\n" for n in range(1, count + 1))


def test_a_host_without_a_number_is_known_by_what_its_own_lines_say():
    """In front of the lines, or as a folder; what only one of several says of itself is none."""
    lines = [
        f"{host}: INFO fit: started on {host}, pid {9 + at}"
        for at, host in enumerate(("oak", "elm"))
    ]
    merged = "\n".join([*lines, *(f"elm: {row}" for row in KEY.splitlines())]) + "\n"
    assert verdict({"all.log": merged}).first_fault.node == "elm"
    said = {"oak": "fit: started on oak, pid 9\n", "elm": f"fit: started on elm, pid 8\n{KEY}"}
    assert verdict({f"{h}/out.log": text for h, text in said.items()}).first_fault.node == "elm"
    one = {"oak/out.log": "fit: started\n", "elm/out.log": f"fit: started on elm, pid 8\n{KEY}"}
    assert verdict(one).first_fault.node is None


def test_folders_that_part_the_ranks_between_them_are_called_after_hosts():
    ranks = [("zeus", 0), ("zeus", 1), ("hera", 2), ("hera", 3)]
    names = [(f"{host}/rank{rank}/current", rank) for host, rank in ranks]
    assert hosts_by_folders(names) == {name: name.partition("/")[0] for name, _ in names}
    assert not hosts_by_folders([(f"{host}/rank{at % 2}.log", at % 2) for host, at in ranks])
    assert not hosts_by_folders([(f"run{at // 2}/rank{at}.log", at) for _, at in ranks])


def test_files_that_are_numbered_on_from_host_to_host_are_of_those_ranks():
    names = [f"fit.gn-{4 + at // 2}.{at}.err" for at in range(6)]
    assert ranks_across_hosts([(name, None) for name in names]) == {
        name: (f"gn-{4 + at // 2}", at) for at, name in enumerate(names)
    }
    anew = [(f"fit.gn-{4 + at // 2}.{at % 2}.err", None) for at in range(6)]
    assert not ranks_across_hosts(anew)
    padded = [(f"edge-{1 + at // 2}/fit_0{at}.log", f"edge-{1 + at // 2}") for at in range(4)]
    assert [rank for _, rank in ranks_across_hosts(padded).values()] == [0, 1, 2, 3]
    found = verdict({name: steps() + (KEY if name == "fit.gn-6.5.err" else "") for name in names})
    assert (found.first_fault.rank, found.first_fault.node) == (5, "gn-6")


def test_a_file_that_a_schedulers_record_names_was_written_on_the_host_of_its_job():
    record = "JobId={} JobName=fit\n   NodeList={}\n   StdOut=/home/u/logs/fit_{}.out\n\n"
    told = record.format(7, "vx-1", 0) + record.format(8, "vx-2", 1)
    files = {"fit_0.out": steps(), "fit_1.out": steps() + KEY, "scontrol.txt": told}
    assert verdict(files).first_fault.node == "vx-2"
    ends = told.replace("   NodeList=vx-2", "   JobState=COMPLETING\n   NodeList=vx-2")
    for none in (record.format(7, "vx-[1-2]", 1), ends + record.format(9, "vx-3", 2)):
        assert verdict(files | {"scontrol.txt": none}).first_fault.node is None
