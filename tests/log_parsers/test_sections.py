"""A heading inside a file says of which host the lines below it are; an ornament says nothing."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.log_parsers.sections import Shape, heading, shapes, titled
from rerail.log_parsers.view import LogView


def view(text: str) -> LogView:
    return diagnose_texts({"job.log": text}).case.views[0]


def hosts(text: str) -> list[str | None]:
    one = view(text)
    return [line.node for n in one.numbers if (line := one.line(n)) is not None]


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.id)
def test_a_shape_holds_on_its_examples(shape: Shape) -> None:
    for text in shape.matches:
        told = heading(text, framed=shape.framed)
        assert told is not None, text
        assert told.shape == shape.id
        assert (told.origin is not None) != (shape.id in ("any-command", "stream")), text


@pytest.mark.parametrize(
    "text",
    [
        "=== epoch 3 ===",
        "==== backtrace (tid: 233085) ====",
        "--- 10.0.0.9 ping statistics ---",
        "======= gn-3 and gn-4: syslog =======",
        "### localhost log",
        "+ kubectl get pods -o wide",
        "-- attempt-2 output --",
        "$ tail -n 14 /fs2/proj/lm/out/8812904.log",
    ],
)
def test_what_names_no_host_is_no_section(text: str) -> None:
    told = heading(text)
    assert told is None or told.origin is None


@pytest.mark.parametrize(
    ("name", "host", "pod"),
    [
        ("dmesg -T (gn-07)", "gn-07", None),
        ("node1 of 2 (host: hpc-a2)", "hpc-a2", None),
        ("gn-r2-07 dmesg", "gn-r2-07", None),
        ("ipmitool sel elist, gn-07-bmc", "gn-07", None),
        ("kubectl logs llama-worker-2", None, "llama-worker-2"),
        ("job.o4471 (one GPU per node)", None, None),
        ("kubectl get pods -o wide", None, None),
        ("train 2.log", None, None),
        ("gn-07", None, None),
    ],
)
def test_a_file_whose_name_is_a_title_is_of_the_host_or_pod_that_it_names(
    name: str, host: str | None, pod: str | None
) -> None:
    told = titled(name)
    assert (told.node if told else None, told.place if told else None) == (host, pod)
    if host is not None:
        found = diagnose_texts({name: "boom\n", "other.log": "bang\n"}).case.views
        assert {one.name: one.origin.node for one in found} == {name: host, "other.log": None}


def test_lines_belong_to_the_host_of_their_section() -> None:
    text = "starting\n=== gn-07 dmesg ===\n[12.5] a: b\n=== gn-09 syslog ===\nkernel: x\n=== summary ===\nend\n"
    assert hosts(text) == [None, "gn-07", "gn-07", "gn-09", "gn-09", None, None]


def test_a_label_knows_better_than_the_heading() -> None:
    text = "=== gn-07 log ===\nMar  3 10:00:01 gn-08 kernel: x\n"
    assert hosts(text)[1] == "gn-08"


def test_another_command_ends_what_one_printed_and_begins_what_stands_under_a_title() -> None:
    for prompt in ("$ ", "ops@jump:~$ "):
        text = f"{prompt}ssh gn-07 uptime\nup 3 days\n{prompt}./show_log.sh gn-09\nboom\n"
        assert hosts(text) == ["gn-07", "gn-07", None, None]
    text = (
        "=== gn-07 console ===\n$ aws ec2 get-console-output\nboom\n=== gn-09 console ===\nbang\n"
    )
    assert hosts(text) == ["gn-07", "gn-07", "gn-07", "gn-09", "gn-09"]


def test_a_file_of_a_host_under_tail_and_a_rank_beside_the_host_in_a_title() -> None:
    assert hosts("==> gn-07:/var/log/fabricmanager.log <==\nboom\n") == ["gn-07", "gn-07"]
    one = view("== py-spy dump, rank 3, host gn-07, pid 22 ==\nboom\n== step of rank 5 ==\nbang\n")
    lines = [line for n in one.numbers if (line := one.line(n)) is not None]
    assert [(line.rank, line.node) for line in lines][1::2] == [(3, "gn-07"), (None, None)]


@pytest.mark.parametrize(
    "title",
    [
        "=== stderr, local rank 1, host gn-12 ===",
        "=== log of node rank 1 (host gn-12) ===",
        "=== dmesg on host gn-12 (rank 8, rank 9) ===",
    ],
)
def test_a_number_that_counts_something_else_in_a_title_is_no_rank(title: str) -> None:
    told = heading(title)
    assert told is not None
    assert told.origin is not None
    assert (told.origin.rank, told.origin.node) == (None, "gn-12")


def test_a_time_or_a_port_behind_a_colon_is_no_file_of_a_host() -> None:
    for path in ("log-2025-01-03T10:11:12.txt", "gn-12:29500"):
        told = heading(f"==> {path} <==")
        assert told is None or told.origin is None


def test_headings_of_files_in_folders_of_hosts_tell_the_hosts_and_local_ranks() -> None:
    one = view(
        "==> /w/run7/gn-07/worker_3.log <==\nboom\n==> /w/run7/gn-08/worker_3.log <==\nbang\n"
    )
    told = [one.line(number) for number in (2, 4)]
    assert [(line.node, line.rank, line.local_rank) for line in told if line is not None] == [
        ("gn-07", None, 3),
        ("gn-08", None, 3),
    ]


def test_a_single_folder_with_a_number_is_no_host() -> None:
    one = view("==> exp-7/worker_3.log <==\nboom\n==> exp-7/worker_4.log <==\nbang\n")
    told = [one.line(number) for number in (2, 4)]
    assert [(line.node, line.rank) for line in told if line is not None] == [(None, 3), (None, 4)]


def test_files_of_tail_tell_rank_and_host_as_their_names_do() -> None:
    one = view("==> logs/rank_19.err <==\nboom\n==> logs/rank_3.err <==\nbang\n")
    ranks = [line.rank for n in one.numbers if (line := one.line(n)) is not None]
    assert ranks == [19, 19, 3, 3]


def test_a_host_in_a_frame_of_dashes_is_a_heading_and_a_list_of_hosts_is_none() -> None:
    text = "-------\ndgx[05-06]\n-------\na\n-------\ndgx07\n-------\nb\n"
    assert hosts(text) == [None, None, None, None, None, "dgx07", "dgx07", "dgx07"]


def test_a_short_name_in_a_frame_is_a_host_where_a_folded_list_has_others_of_its_series() -> None:
    frame = "-------\n{}\n-------\n{}\n"
    listed = frame.format("b[11-12,14] (3)", "a")
    assert hosts(listed + frame.format("b13", "b"))[-1] == "b13"
    assert hosts(frame.format("b13", "b"))[-1] is None


def test_a_described_pod_is_a_place_whose_host_another_line_tells() -> None:
    text = (
        "trainer-5 0/1 Error 10.2.4.9 vm-cpu-h6\n+ kubectl describe pod trainer-5\n"
        '  Warning  Failed  12m  kubelet  Failed to pull image "x/runner:1": failed to extract layer sha256:9e2: '
        "write /var/lib/containerd/a: no space left on device\n"
    )
    found = diagnose_texts({"job.log": text}).diagnosis
    assert found.first_fault is not None
    assert found.first_fault.node == "vm-cpu-h6"


def test_the_order_of_sections_is_no_order_of_time() -> None:
    later = "=== gn-1 syslog ===\nMar  3 10:20:00 gn-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    first = "=== gn-2 syslog ===\nMar  3 10:00:00 gn-2 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    for text in (later + first, first + later):
        found = diagnose_texts({"job.log": text}).diagnosis
        assert found.first_fault is not None
        assert found.first_fault.node == "gn-2"


@pytest.mark.parametrize(
    ("between", "after", "told"),
    [
        ("W0101 starting\n", "W0101 starting\n", ["mv1", "mv1", "mv2", "mv2"]),
        ("", "W0101 starting\nW0101 starting\n", [None] * 4),
    ],
)
def test_what_a_launch_at_the_shell_of_each_host_prints_is_of_that_host(
    between: str, after: str, told: list[str | None]
) -> None:
    launch = "ann@mv{n}:~$ torchrun --nnodes 2 --node-rank {m} --nproc-per-node 4 t.py\n"
    text = launch.format(n=1, m=0) + between + launch.format(n=2, m=1) + after
    assert hosts(text) == told


def test_a_single_launch_of_several_that_is_shown_says_nothing_of_the_lines_below() -> None:
    text = "ann@mv1:~$ torchrun {}--nproc-per-node 4 t.py\nW0101 starting\n"
    assert hosts(text.format("--nnodes 2 --node-rank 0 "))[1] is None
    assert hosts(text.format(""))[1] == "mv1"


def test_a_file_that_numbers_a_host_names_none_where_hosts_have_names() -> None:
    tail = "[root@npu-gy-033 ~]# tail -n 40 /mnt/sfs/run_0612/node2.log\nboom\n"
    assert hosts(tail)[1] == "node2"
    assert hosts(f"{tail}[root@npu-gy-033 ~]# npu-smi info\nOK\n")[1] is None
    assert hosts(f"{tail}[root@node3 ~]# npu-smi info\nOK\n")[1] == "node2"
