"""`gpu-0003` in front of ranks that go on from host to host is a host; a GPU of one is a local rank as before."""

from __future__ import annotations

import pytest

from rerail.log_parsers.hosts_like_devices import in_blocks
from rerail.log_parsers.induced_labels import induce
from rerail.log_parsers.prefixes import NOWHERE, Origin, parse_line

HOSTS = {
    "a collector's prefix": "gpu-{host:04d}: [rank {rank}] 2026-03-01 02:00:{step:02d} loss 3.{step}",
    "time, host and rank": "2026-03-01 02:00:{step:02d} gpu-{host:04d} [{rank}]: loss 3.{step}",
    "without zeros": "gpu-{host}: [rank {rank}] loss 3.{step}",
}


def lines(form: str, hosts: int, each: int, steps: int) -> list[str]:
    return [
        form.format(host=rank // each, rank=rank, step=step, local=rank % each)
        for step in range(1, steps + 1)
        for rank in range(hosts * each)
    ]


@pytest.mark.parametrize("form", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize(("hosts", "steps"), [(4, 3), (8, 3), (20, 1)])
def test_names_like_devices_are_hosts_where_ranks_go_through_them(
    form: str, hosts: int, steps: int
) -> None:
    texts = lines(form, hosts, 8, steps)
    origin = Origin(induced=induce(texts, year=2026))
    last = parse_line("a.log", 1, texts[-1], origin=origin, year=2026)
    name = form.split(" gpu-")[-1].removeprefix("gpu-").partition("}")[0] + "}"
    assert (last.rank, last.local_rank) == (hosts * 8 - 1, None)
    assert last.node == "gpu-" + name.format(host=hosts - 1)


@pytest.mark.parametrize(
    "form", ["gpu-{local}: [rank {rank}] loss 3.{step}", "gpu{local}: [rank {rank}] loss 3.{step}"]
)
def test_a_gpu_of_a_host_is_none(form: str) -> None:
    texts = lines(form, 4, 8, 3)
    last = parse_line(
        "a.log", 1, texts[-1], origin=Origin(induced=induce(texts, year=2026)), year=2026
    )
    assert (last.rank, last.local_rank, last.node) == (31, 7, None)
    assert NOWHERE.induced == ()


def test_ranks_lie_in_blocks_and_process_ids_do_not() -> None:
    assert in_blocks([(rank // 8, rank) for rank in range(64)])
    assert in_blocks([(3, 24), (3, 31), (9, 75)])
    assert not in_blocks([(rank % 8, rank) for rank in range(64)])
    assert not in_blocks([(rank, rank) for rank in range(8)])
    assert not in_blocks([(0, 4100), (0, 4107), (1, 9001), (1, 9004)])
