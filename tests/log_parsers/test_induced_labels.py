"""Labels that no pattern knows: read from what a file's lines have in common, and never from counters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis
from rerail.log_parsers.induced_labels import in_brackets, induce

HOSTS = ("cn0312", "cn0312", "cn0313", "cn0313")
Label = Callable[[int, str], str]


def job(label: Label, end: str = "") -> list[str]:
    """Four ranks on two hosts train, then rank 2 on cn0313 runs out of disk and the others lose it."""
    lines = [
        f"{label(rank, HOSTS[rank])}step {10 * step} loss {2.1 - step / 10:.2f}{end}"
        for step in range(1, 5)
        for rank in range(4)
    ]
    raised = ("Traceback (most recent call last):", '  File "/w/train.py", line 88, in main',
              "OSError: [Errno 28] No space left on device")  # fmt: skip
    lines += [label(2, "cn0313") + text + end for text in raised]
    lost = (
        "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:41772"
    )
    return lines + [label(rank, HOSTS[rank]) + lost + end for rank in (0, 1, 3)]


@pytest.mark.parametrize(
    ("label", "rank", "node"),
    [
        (lambda r, h: f"{h} | ", None, "cn0313"),
        (lambda r, h: f"{h}\t", None, "cn0313"),
        (lambda r, h: f"{h}\t{r}\t", 2, "cn0313"),
        (lambda r, h: f"[task-{r}] ", 2, None),
        (lambda r, h: f"[task-{r} {h}] ", 2, "cn0313"),
        (lambda r, h: f"<{h}:{r}> ", 2, "cn0313"),
        (lambda r, h: f"({h}/{r}) ", 2, "cn0313"),
        (lambda r, h: f"r{r}@{h}: ", 2, "cn0313"),
        (lambda r, h: f"[proc {r} on {h}] ", 2, "cn0313"),
        (lambda r, h: f"{h} - rank{r} - ", 2, "cn0313"),
        (lambda r, h: f"PE{r:03d}: ", 2, None),
        (lambda r, h: f"{h}:{r}: ", 2, "cn0313"),
        (lambda r, h: f"[{h}][{r}] ", 2, "cn0313"),
        (lambda r, h: f"w{r}| ", None, None),
        (lambda r, h: f"2026-03-01 02:00:{r:02d} {h} | rank {r} | ", 2, "cn0313"),
        (lambda r, h: f"2026-03-01T02:00:{r:02d}Z {h} ", None, "cn0313"),
        # A number that repeats on every host is a local rank: no rank is named.
        (lambda r, h: f"[{h}:{r % 2}] ", None, "cn0313"),
    ],
)
def test_rank_and_node_of_a_label_that_no_pattern_knows(
    diagnose: Callable[[str], Diagnosis], label: Label, rank: int | None, node: str | None
) -> None:
    first = diagnose("\n".join(job(label)) + "\n").first_fault
    assert first is not None
    assert "No space left" in first.text
    assert (first.rank, first.node) == (rank, node)


@pytest.mark.parametrize(
    "unlabelled",
    [
        "kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=4404, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:9b:00): 79, pid=4404, GPU has fallen off the bus.",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0.",
        "ERROR: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
    ],
)
@pytest.mark.parametrize("label", ["{}: ", "{} | ", "[{}] ", "2026-03-01 02:00:00 {} "])
def test_the_first_word_of_a_line_without_the_label_is_no_host(
    diagnose: Callable[[str], Diagnosis], label: str, unlabelled: str
) -> None:
    steps = "".join(f"{label.format(f'gn-{i % 2 + 1}')}step {i // 2} loss 2.1\n" for i in range(20))
    first = diagnose(steps + unlabelled + "\n").first_fault
    assert first is None or first.node is None


@pytest.mark.parametrize(
    "label",
    [
        "[dp_rank={}] ", "[tp_rank {}] ", "[DP {}] ", "PP {} | ", "tp_rank: {} | ", "[node_rank {}] ", "node {}: ",
        "[env {}] ", "client {} | ", "[dataloader {}] ", "[DataLoader worker {}] ", "Task {}: ", "[main.py:{}] ",
        "[SpawnProcess-{}] ", "[ThreadPoolExecutor-0_{}] ", "[TP{}] ", "train_v{}.py:91: ", "[stage-{}-zero] ",
        "INFO llama{}.train - ", "[expert-{}] ",
    ],
)  # fmt: skip
def test_parts_of_a_job_threads_models_and_files_are_neither_ranks_nor_hosts(
    diagnose: Callable[[str], Diagnosis], label: str
) -> None:
    steps = "".join(f"{label.format(i % 4)}step {i // 4} loss 2.1\n" for i in range(40))
    fault = f"{label.format(2)}RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    first = diagnose(steps + fault).first_fault
    assert first is not None
    assert (first.rank, first.node) == (None, None)


@pytest.mark.parametrize(
    "line",
    [
        lambda i: f"step {i}: loss {2 - i / 100:.2f}",
        lambda i: f"epoch {i // 10}: step {i} loss 2.1",
        lambda i: f"[{i % 3}/3] loading shard {i}",
        lambda i: f"expert{i % 4}: load 0.{i}",
        lambda i: f"layer{i % 4} | grad norm 0.{i}",
        lambda i: f"lr{i % 2}: 0.00{i}",
        lambda i: f"{('INFO', 'WARNING')[i % 2]} - all is well {i}",
        lambda i: f"try {i % 3}: connecting",
        lambda i: f"model.layers.{i % 5}: ok",
    ],
)
def test_no_label_is_made_of_words_of_the_messages(line: Callable[[int], str]) -> None:
    assert induce([line(i) for i in range(60)], year=2026) == ()


def test_a_single_writer_has_no_label() -> None:
    assert induce([f"resnet50 | step {i}" for i in range(40)], year=2026) == ()


def test_a_pod_and_its_container_in_front_of_all_lines_are_a_label():
    text = [
        "sft-master-0 pytorch   time      : 2023-03-20_07:11:09",
        "sft-worker-1 pytorch   host      : sft-worker-1",
        "sft-worker-1 pytorch   rank      : 9 (local_rank: 1)",
        "sft-master-0 pytorch   exitcode  : 1 (pid: 311)",
    ]
    for lines in (text * 3, ["$ stern -n llm sft", "sft-worker-1 pytorch", *text * 3]):
        (label,) = induce(lines, year=2026)
        match = label.match("sft-worker-1 pytorch   rank", 0, None)
        assert match is not None and match["node"] == "sft-worker-1"


@pytest.mark.parametrize("front", ["step-{} loss ", "img-00{} stored ", "node3 loss "])
def test_a_counter_and_a_word_in_front_of_all_lines_are_none(front: str):
    assert induce([front.format(i) + f"0.{i}" for i in range(40)], year=2026) == ()


def test_a_bare_number_is_a_rank_where_processes_call_themselves_so():
    text = [f"[{i}] rank {i} of 8 pid 4{i} host gpu2" for i in (0, 4, 5)]
    text += [f"[{i}] step {n} loss 4.0" for n in range(4) for i in (0, 4, 5)]
    (label,) = induce(text, year=2026)
    match = label.match("[5] boom", 0, None)
    assert match is not None and match["rank"] == "5"
    assert induce([line.replace("rank ", "item ") for line in text], year=2026) == ()


def test_a_bare_number_is_a_rank_where_the_launcher_was_told_to_write_it():
    text = [
        "mpiexec.hydra -l -n 6 python train.py",
        *(f"[0] step {n}" for n in range(7)),
        "[4] boom",
    ]
    (label,) = induce(text, year=2026)
    match = label.match("[4] boom", 0, None)
    assert match is not None and match["rank"] == "4"
    assert induce(text[1:], year=2026) == ()


def test_hosts_called_node1_and_node2_take_turns_in_front():
    text = [f"node{1 + i % 3}: {word} {i}" for i, word in enumerate(["step", "saved", "loss"] * 4)]
    (label,) = induce(text, year=2026)
    match = label.match("node3: boom", 0, None)
    assert match is not None and match["node"] == "node3"


def test_one_writer_that_comes_back_is_enough_where_every_line_is_labelled():
    text = [f"tf-w{host} | Epoch {n}/10" for n, host in enumerate((0, 0, 0, 2, 2, 2, 1, 0, 0))]
    for lines in (text, ["TF_CONFIG={}", *text]):
        (label,) = induce(lines, year=2026)
        match = label.match("tf-w2 | boom", 0, None)
        assert match is not None and match["node"] == "tf-w2"
    assert induce(["a heading", "and another", *text], year=2026) == ()
    once = [f"tf-w{host} | Epoch {n}/10" for n, host in enumerate((0, 0, 0, 1, 1, 1, 2, 2, 2))]
    assert induce(once, year=2026) == ()


def test_a_host_in_brackets_that_only_counts_is_one_where_it_is_known_as_a_host():
    text = [f"2026-05-29T08:00:0{n} [h0{7 + n % 2}] step {n}" for n in range(8)]
    (label,) = in_brackets(text, {"h08"})
    match = label.match("[h07] boom", 0, None)
    assert match is not None and match["node"] == "h07"
    assert in_brackets(text, {"gn-1"}) == ()
    assert in_brackets([*text[:5], "2026-05-29T08:00:09 [e5] boom"], {"h08"}) == ()


@pytest.mark.parametrize("front", ["<{r}> ", "{r}> ", "({r}/4) ", "[proc {r} of 4] "])
def test_numbers_up_to_as_many_as_the_job_has_ranks_are_ranks(front: str):
    lines = [
        front.format(r=r) + f"step {10 * step} loss 2.1" for step in range(4) for r in (1, 0, 3, 2)
    ]
    told = [front.format(r=0) + "world size: 4"]
    (label,) = induce(told + lines, year=2026)
    match = label.match(front.format(r=3) + "boom", 0, None)
    assert match is not None and match["rank"] == "3"
    if "4" not in front:
        assert induce([front.format(r=0) + "world size: 8", *lines], year=2026) == ()
        assert induce(lines, year=2026) == ()


def test_the_name_of_one_pod_in_front_of_all_lines():
    lines = [f"yolo-train-7c9f5d-x2lqz  05:11:{i:02d}.114 begin batch {i}" for i in range(8)]
    (label,) = induce(lines, year=2026)
    match = label.match(lines[0], 0, None)
    assert match is not None and match["place"] == "yolo-train-7c9f5d-x2lqz"
    assert induce(["resnet50-v2-b  step 1"] * 3 + ["mixtral-8x7b-a  step 2"] * 5, year=2026) == ()


def test_a_number_in_front_of_nccls_lines_is_the_rank():
    ranks = (51, 56, 48, 56, 51, 56)
    lines = [
        f"[{r}] crow-ib-b-{r // 8}:{7000 + r}:7401 [0] NCCL INFO Using network IB" for r in ranks
    ]
    label = induce(lines, year=2026)[0]
    match = label.match("[56] RuntimeError: boom", 0, None)
    assert match is not None
    assert (match["rank"], match.end()) == ("56", 5)


@pytest.mark.parametrize(
    ("told", "rank"),
    [("--output=%N-%t.out", 12), ("--output=%j.out", None), ("torchrun -o %N-%t.out", None)],
)
def test_names_of_task_files_in_front_of_lines_are_read_where_a_line_tells_their_form(told, rank):
    text = f"$ grep -n Error *.out   # {told}\nkr3-12.out:90:ValueError: a\nkr3-13.out:91:RuntimeError: lost\n"
    line = diagnose_texts({"job.log": text}).case.views[0].line(2)
    assert (line.rank, line.node) == (rank, None if rank is None else "kr3")


@pytest.mark.parametrize(
    ("front", "rank", "node"),
    [
        ("2026-03-01 02:00:0{i},123 INFO R{r} (gpu-a0{h}) - ", 2, "gpu-a02"),
        ("2026-03-01 02:00:0{i},123 | WARNING | gpu-a0{h} rank-{r} | ", 2, "gpu-a02"),
        ("INFO:__main__:[gpu-a0{h}] [R{r}] ", 2, "gpu-a02"),
        ("I0301 02:00:0{i}.123456 4711 train.py:88] PE{r} @gpu-a0{h} | ", 2, "gpu-a02"),
        ("gpu-a0{h} 2026-03-01 02:00:0{i},123 [INFO] trainer.loop: mpi_rank={r} | ", 2, "gpu-a02"),
        ("[rk{r}]: ", 2, None),
        ("n1{h} | rank {r} | ", 2, "n12"),
    ],
)
def test_levels_and_places_in_programs_stand_between_the_parts_of_a_label(
    diagnose: Callable[[str], Diagnosis], front: str, rank: int, node: str | None
) -> None:
    fault = "OSError: [Errno 28] No space left on device"
    said = [(r, "step 10 loss 2.1") for r in (1, 0, 3, 2)] + [(2, fault)]
    lines = [front.format(i=i, r=r, h=1 + r // 2) + text for i, (r, text) in enumerate(said)]
    lines[-1] = lines[-1].replace("INFO", "ERROR").replace("I0301", "E0301")
    first = diagnose("\n".join(lines) + "\n").first_fault
    assert first is not None
    assert (first.rank, first.node) == (rank, node)


@pytest.mark.parametrize("front", ["[proc {r}] ", "process {r} | "])
def test_numbers_of_processes_are_ranks_unless_the_job_has_another_number(front: str) -> None:
    lines = [front.format(r=r) + f"step {step}" for step in range(4) for r in (1, 0, 3, 2)]
    label = induce(lines, year=2026)[0]
    match = label.match(front.format(r=3) + "boom", 0, None)
    assert match is not None and match["rank"] == "3"
    assert induce(["world_size=8", *lines], year=2026) == ()


def test_a_number_behind_the_label_of_a_rank_is_that_of_its_group(
    diagnose: Callable[[str], Diagnosis],
) -> None:
    lines = [f"[rank{r}]: [PG 2 Rank {r - 4}] step 10" for r in (4, 5, 6, 7)]
    lines.append("[rank6]: [PG 2 Rank 2] OSError: [Errno 28] No space left on device")
    first = diagnose("\n".join(lines) + "\n").first_fault
    assert first is not None and first.rank == 6
