"""Logs that are called after hosts: only where the lines bear it out."""

from rerail.log_parsers.named_after_hosts import named_after_hosts, told_by


def named(logs: dict[str, str], known: tuple[str, ...] = ()) -> list[str | None]:
    told = [told_by(text.encode().split(b"\n")) for text in logs.values()]
    return named_after_hosts(list(logs), told, known)


def test_one_that_is_named_as_a_host_carries_the_others_of_its_series():
    logs = {
        "trl-node-a.log": "accelerate launch --machine_rank 0 --main_process_ip trl-node-a sft.py",
        "trl-node-b.log": "failed on SocketImpl(fd=63, addr=[trl-node-b]:41890, remote=[trl-node-a]:29501)",
        "trl-node-c.log": "[rank21]: json.decoder.JSONDecodeError: Unterminated string",
    }
    assert named(logs) == ["trl-node-a", "trl-node-b", "trl-node-c"]


def test_a_series_that_nothing_calls_hosts_needs_a_node_rank_in_each():
    assert named({"foundry-0.log": "node_rank=0", "foundry-2.log": "node_rank=2"}) == [
        "foundry-0",
        "foundry-2",
    ]
    assert named({"foundry-0.log": "node_rank=0", "foundry-2.log": "node_rank=0"}) == [None, None]
    assert named({"foundry-0.log": "step 3", "foundry-2.log": "step 3"}) == [None, None]


def test_runs_ranks_and_programs_are_no_hosts():
    for stem in ("run-{}", "rank_{}", "train-{}", "worker-{}", "launch-{}", "slurm-{}"):
        logs = {stem.format(n) + ".log": f"node_rank={n}" for n in (0, 1)}
        assert named(logs) == [None, None], stem


def test_words_around_a_host_are_cut_off_where_it_is_known():
    logs = {
        "load-ckpt-h1.log": "hostfile: ckpt-h1 slots=8, ckpt-h5 slots=8",
        "load-ckpt-h5.log": "",
    }
    assert named(logs) == ["ckpt-h1", "ckpt-h5"]
    assert named({"hgx-042-nvidia-smi.txt": ""}, known=("hgx-042",)) == ["hgx-042"]
    assert named({"hgx-0421.log": ""}, known=("hgx-042",)) == [None]


def test_a_machine_with_a_number_stands_in_front_of_what_only_machines_have():
    logs = dict.fromkeys(
        ["dgxh-2_nvidia-smi-q.txt", "dgx-b11_sel.txt", "gn-12.ibstat_after.log", "gn-12_notes.txt"],
        "",
    )
    assert named(logs) == ["dgxh-2", "dgx-b11", "gn-12", None]
    logs = dict.fromkeys(["rank3_nvidia-smi.txt", "job-12_sel.txt", "before_nvidia-smi.txt"], "")
    assert named(logs) == [None, None, None]
