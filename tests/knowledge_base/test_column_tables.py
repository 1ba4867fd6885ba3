"""Tables with titles tie ranks, processes, pods and addresses to hosts; what is no such table tells nothing."""

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.cached_yaml import load_cached
from rerail.knowledge_base.placement.column_tables import FILE, rows

EXAMPLES = load_cached(FILE)["matches"]


def told(text: str) -> dict[str, str]:
    """What the rows of a text tell: kind and name, and the host or rank beside it."""
    found = {}
    case = diagnose_texts({"job.log": text}).case
    for row in (row for view in case.views for row in rows(view)):
        beside = row.cells.get("node") or row.cells.get("rank")
        if "gpu" in row.cells and "pci" in row.cells:
            found[f"gpu {row.cells['gpu']}"] = row.cells["pci"]
        for kind in ("rank", "ranks", "pod", "address", "pid"):
            if kind in row.cells and beside and (kind != "rank" or "node" in row.cells):
                found[f"{kind} {row.cells[kind]}"] = beside
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one["table"].split("\n")[0][:40])
def test_an_example_is_read(example):
    assert told(example["table"]) == example["tells"]


@pytest.mark.parametrize(
    "text",
    [
        "node rank\nthe node has no rank\n",  # a sentence below words that might be titles
        "RANK  LOSS\n0     2.31\n",
        "HOST  NODE\ngn-1  gn-2\n",  # two columns of hosts, and nothing that runs there
        "RANK  HOST\nfirst gn-1\n",
        "RANK  HOST\n0     localhost\n",
        "The server socket has failed (98 - Address already in use)\n"
        "The server socket has failed (98 - Address already in use)\n",
    ],
)
def test_what_is_no_table_of_places_tells_nothing(text):
    assert told(text) == {}


def test_columns_taken_out_of_all_namespaces_are_counted_from_there():
    text = "$ kubectl get pods -A -o wide | awk '{print $2,$8}'\nsft-worker-2 gke-pool-2m7v\n"
    assert told(text) == {"pod sft-worker-2": "gke-pool-2m7v"}
    assert told(text.replace(" -o wide", "")) == {}


def test_the_table_places_the_fault():
    text = (
        "RANK  HOST\n0     gn-11\n1     gn-12\n\n[rank0]: step 10 loss 2.1\n"
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
    )
    fault = diagnose_texts({"job.log": text}).diagnosis.first_fault
    assert fault is not None and (fault.rank, fault.node) == (1, "gn-12")


def test_the_table_of_nvidia_smi_says_which_gpu_an_address_is():
    text = (
        "NODE_RANK=1 HOSTNAME=gn-b7 LOCAL_WORLD_SIZE=2\nNODE_RANK=0 HOSTNAME=gn-b6 LOCAL_WORLD_SIZE=2\n"
        "[root@gn-b7 ~]# nvidia-smi --query-gpu=index,pci.bus_id --format=csv\nindex, pci.bus_id\n"
        "0, 00000000:19:00.0\n1, 00000000:CD:00.0\n[root@gn-b7 ~]# dmesg -T\n"
        "[Mon Aug 19 23:14:29 2024] NVRM: Xid (PCI:0000:cd:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    )
    fault = diagnose_texts({"job.log": text}).diagnosis.first_fault
    assert fault is not None and (fault.rank, fault.node, fault.gpu) == (3, "gn-b7", 1)


def test_the_accounting_tells_the_host_of_the_largest_task_of_a_step_and_of_none_of_the_batch_script():
    text = (
        "JobID|State|MaxRSS|MaxRSSNode|MaxRSSTask|NodeList\n77|FAILED||||gn-1,gn-2\n77.batch|FAILED|9K|gn-1|0|gn-1\n"
        "77.extern|COMPLETED|9K|gn-2|1|gn-1,gn-2\n77.0|FAILED|8G|gn-2|5|gn-1,gn-2\n"
    )
    case = diagnose_texts({"job.log": text}).case
    found = [row.cells for view in case.views for row in rows(view) if "task" in row.cells]
    assert found == [{"node": "gn-2", "task": "5"}]
