"""An operator's pods have the numbers of their nodes, where the whole job is known."""

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
