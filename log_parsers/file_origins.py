"""What the content of a file, or of the files beside it, tells about where its lines come from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rerail.domain.evidence import Stream
from rerail.log_parsers.induced_labels import induce
from rerail.log_parsers.labels import is_no_host
from rerail.log_parsers.prefixes import Origin
from rerail.log_parsers.survey import FileSurvey
from rerail.log_parsers.text import clean

_SAMPLE = 400
_FEW_LINES, _HEAD = 80, 160
_MOST_INDUCED = 64  # files; of more than these each has one writer
_RANK_LABEL = re.compile(rb"^.{0,60}?\[(?:rank|default)(?P<rank>\d{1,6})\]:", re.MULTILINE)
_NCCL_HOST = re.compile(rb"(?:^|[\s\]:])(?P<host>[A-Za-z][\w.-]{1,80}):\d+:\d+ \[\d+\] ")
_DESCRIBED = re.compile(rb"^Node: {2,}(?P<node>[A-Za-z0-9][\w.-]*)(?:/[\da-fA-F.:]+)?\s*$")
# DeepSpeed's launcher lists the hosts of the job; pdsh, which it starts, puts the host in front of each line.
_MAPPED = re.compile(rb"'(?P<host>[A-Za-z][\w.-]{0,80})': \[\d{1,6}(?:, \d{1,6})*\]")
_MAPS = (b"global_rank_mapping=", b"WORLD INFO DICT: ")
# No logger labels the frames of a traceback: what stands in front of them is put there for each line.
_FRAMED = re.compile(rb'^(?P<host>(?=[\w.-]*[\d-])[A-Za-z][\w.-]{1,80}): {3}File "')
_PART = re.compile(r"[/_]|\.(?!\d)")


def content_origins(surveys: Sequence[FileSurvey], *, year: int) -> dict[str, Origin]:
    """Return by file name the origins that differ from what the path alone tells.

    - In a single-node tree of torchrun, or folder of Paddle's launcher, the local rank is the rank.
    - `worker-3.log` is rank 3 unless its lines carry labels of other ranks: then it is a pod.
    - `kubectl describe pod` names the node of its pod at its top.
    - Words in front of the lines of a merged file are hosts where a launcher lists them, or where they stand
      in front of the frames of a traceback too.
    - A label that no pattern knows is learned from the lines that carry it.
    - A file without a node whose name holds a host that the other lines name is that host's.
    """
    found = _single_tree(surveys)
    hosts: set[str] = set()
    for one in surveys:
        hosts |= {m["host"].decode("utf-8", "replace") for m in _in(one, b" NCCL ", _NCCL_HOST)}
    short = {host.split(".")[0] for host in hosts if re.search(r"\d", host)}
    for one in surveys:
        name, origin = one.source.name, found.get(one.source.name, one.source.origin)
        changed = origin
        if origin.rank is not None and origin.local_rank is None:
            labels = {int(m["rank"]) for m in _in(one, b"]:", _RANK_LABEL)} - {origin.rank}
            if labels:
                changed = replace(changed, rank=None)
        if changed.node is None and origin.stream is not Stream.SCHEDULER:
            described = {m["node"].decode() for m in _in(one, b"Node: ", _DESCRIBED)}
            named = short & set(_PART.split(name))
            node = described or named
            if len(node) == 1:
                changed = replace(changed, node=node.pop())
        listed = _hosts_listed(one)
        told = listed or origin.rank is not None or origin.local_rank is not None
        if len(surveys) <= _MOST_INDUCED and not told:
            own = induce(_heads(one), year=year)
            changed = replace(changed, induced=own) if own else changed
        if words := listed or (frozenset() if changed.induced else _hosts_in_front(one)):
            changed = replace(changed, hosts=words)
        if changed is not origin:
            found[name] = changed
    return found


def _heads(one: FileSurvey) -> list[str]:
    """Return the fronts of a sample of a file's lines: from its start and its end, in order."""
    numbers = sorted(one.kept)
    if len(numbers) > 2 * _FEW_LINES:
        numbers = numbers[:_FEW_LINES] + numbers[-_FEW_LINES:]
    return [clean(one.kept[number][:_HEAD]) for number in numbers]


def _hosts_in_front(one: FileSurvey) -> frozenset[str]:
    hosts = {m["host"].decode() for m in _in(one, b':   File "', _FRAMED)}
    return frozenset(host for host in hosts if not is_no_host(host))


def _hosts_listed(one: FileSurvey) -> frozenset[str]:
    hosts: set[str] = set()
    for word in _MAPS:
        for match in _in(one, word, _MAPPED):
            hosts |= {m["host"].decode() for m in _MAPPED.finditer(match.string)}
    return frozenset(hosts)


def _in(one: FileSurvey, word: bytes, pattern: re.Pattern[bytes]) -> list[re.Match[bytes]]:
    """Return the matches on a sample of a file's kept lines: its first and its last."""
    numbers = sorted(one.kept)
    if len(numbers) > 2 * _SAMPLE:
        numbers = numbers[:_SAMPLE] + numbers[-_SAMPLE:]
    heads = (one.kept[n][:400] for n in numbers)
    # A look for the word first: hundreds of rank files take no noticeable time.
    return [m for head in heads if word in head and (m := pattern.search(head)) is not None]


def _single_tree(surveys: Sequence[FileSurvey]) -> dict[str, Origin]:
    local = [one for one in surveys if one.source.origin.local_rank is not None]
    trees = {
        name.rsplit("/attempt_", 1)[0] if "/attempt_" in "/" + name else name.rpartition("/")[0]
        for name in (one.source.name for one in local)
    }
    if len(trees) != 1:
        return {}
    return {
        one.source.name: replace(one.source.origin, rank=one.source.origin.local_rank)
        for one in local
    }
