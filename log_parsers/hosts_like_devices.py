"""Hosts that are called like devices: `gpu-0003` in front of ranks that are numbered through such names.

`gpu-3` alone is the third GPU of a host. Where the ranks behind such names lie in blocks, one block behind each and in
their order, the names are those of machines: ranks that are counted on each host come back behind every number instead.
So they are where there are more of them than a host has GPUs, written with as many digits each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from rerail.log_parsers.front_parts import Front, Piece

_GPUS_OF_A_HOST = 16
_LEAST_DIGITS = 3
_RANKS = frozenset({"rank", "number"})


def with_hosts(chains: Sequence[tuple[Front, ...]]) -> Sequence[tuple[Front, ...]]:
    """Return the parts in front of lines, those that are called like devices as hosts where they are."""
    seen: dict[tuple[str, ...], list[tuple[str, list[str]]]] = defaultdict(list)
    for chain in chains:
        if (one := _device(chain)) is not None:
            ranks = [p.value for front in chain for p in front.pieces if p.kind in _RANKS]
            seen[one.form].append((one.pieces[0].value, ranks))
    hosts = {form for form, told in seen.items() if _are_hosts(told)}
    if not hosts:
        return chains
    return [tuple(_as_host(one) if one.form in hosts else one for one in chain) for chain in chains]


def _device(chain: tuple[Front, ...]) -> Front | None:
    """Return the part that is the name of a device with its number, where there is one."""
    for one in chain:
        if len(one.form) == 4 and one.form[2] == "\0local" and one.form[1][:1].isalpha():
            return one
    return None


def _as_host(one: Front) -> Front:
    before, word, _, behind = one.form
    name = Piece("host", word + one.pieces[0].value)
    return replace(one, form=(before, "", "\0host", behind), pieces=(name,))


def _are_hosts(told: Sequence[tuple[str, list[str]]]) -> bool:
    values = {value for value, _ in told}
    widths = {len(value) for value in values}
    if len(values) > _GPUS_OF_A_HOST and len(widths) == 1 and widths.pop() >= _LEAST_DIGITS:
        return True
    return in_blocks([(int(value), int(ranks[0])) for value, ranks in told if len(ranks) == 1])


def in_blocks(told: Sequence[tuple[int, int]]) -> bool:
    """Tell whether ranks go on from host to host in the order of their numbers, several behind at least one of them.

    Args:
        told: the number of a host and a rank, from each line that has both.
    """
    ranks: dict[int, set[int]] = defaultdict(set)
    for host, rank in told:
        ranks[host].add(rank)
    blocks = [ranks[host] for host in sorted(ranks)]
    if len(blocks) < 2 or max(map(len, blocks)) < 2:
        return False
    widest = max(max(block) - min(block) for block in blocks) + 1
    apart = all(max(block) < min(later) for block, later in pairwise(blocks))
    first, lowest = min(ranks), min(blocks[0])
    # What a process is called by its system goes up from host to host by chance alone, and not by as much for each.
    return apart and all(
        abs(min(ranks[host]) - lowest - (host - first) * widest) < widest for host in ranks
    )
