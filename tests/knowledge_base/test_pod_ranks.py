"""An operator's pods have the numbers of their nodes, where the whole job is known."""

from rerail.assistant.pipeline import diagnose_texts
from rerail.cached_yaml import load_cached
from rerail.knowledge_base.placement.pod_ranks import FILE, node_numbers


def test_the_examples_hold():
    for operator in load_cached(FILE)["operators"]:
        told = operator["matches"]
        filled = {f"bert-ddp-worker-{i}" for i in range(max(told.values()))} | told.keys()
        found = node_numbers(filled)
        assert all(found[pod] == number for pod, number in told.items())


def test_workers_without_a_master_are_numbered_by_their_rendezvous():
    assert node_numbers(["a-worker-0", "a-worker-1"]) == {}


def test_a_missing_pod_or_a_second_job_leaves_them_unnumbered():
    assert node_numbers(["a-master-0", "a-worker-1"]) == {}
    assert node_numbers(["a-master-0", "a-worker-0", "b-master-0", "b-worker-0"]) == {}


def _containers(world: int) -> str:
    started = "".join(
        f"node{n}-1  | RANK={n} WORLD_SIZE={world} device Tesla T4\n" for n in range(3)
    )
    return started + (
        "node1-1  | RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
        "node1-1 exited with code 1\n"
    )


def test_what_a_container_prints_is_of_its_rank_where_all_ranks_of_the_job_have_one_each():
    assert diagnose_texts({"a.log": _containers(world=3)}).diagnosis.suspects.ranks == [1]


def test_a_container_may_hold_more_ranks_than_it_names_where_the_job_has_more():
    assert diagnose_texts({"a.log": _containers(world=6)}).diagnosis.suspects.ranks == []
