"""A rank of which no line tells is on the host whose ranks are all around it; of any other layout nothing is said."""

from __future__ import annotations

from rerail.knowledge_base.placement.blocks import free_seats

BLOCKS = {rank: f"gn-{rank // 4}" for rank in range(20)}


def without(known: dict[int, str], *ranks: int) -> dict[int, str]:
    """Return what is known where nothing is of these ranks."""
    return {rank: host for rank, host in known.items() if rank not in ranks}


def test_a_rank_within_the_block_of_a_host_is_on_it() -> None:
    """One or several of a block may be missing, as long as one of it is known."""
    assert free_seats(without(BLOCKS, 6)) == {6: "gn-1"}
    assert free_seats(without(BLOCKS, 4, 5, 6)) == {rank: "gn-1" for rank in (4, 5, 6)}


def test_a_rank_of_a_host_that_is_not_known_or_above_all_others_is_not_placed() -> None:
    """Nobody tells the name of a host of which no rank is known, nor that there is a rank above the highest."""
    assert free_seats(without(BLOCKS, 4, 5, 6, 7)) == {}
    assert free_seats(without(BLOCKS, 19)) == {}


def test_ranks_that_are_dealt_out_in_turn_or_moved_are_not_placed() -> None:
    """Ranks of two blocks on one host, or two hosts in one block, show another layout."""
    assert free_seats(without({rank: f"gn-{rank % 5}" for rank in range(20)}, 6)) == {}
    assert free_seats(without(BLOCKS | {13: "gn-9"}, 6)) == {}
    assert free_seats(without(BLOCKS | {13: "gn-1"}, 6)) == {}


def test_few_hosts_that_are_known_whole_show_no_layout() -> None:
    """Two whole hosts may be so by chance."""
    assert free_seats({0: "a", 1: "a", 2: "b", 3: "b", 5: "c"}) == {}
