"""What the content of a file, or of the files beside it, tells about where its lines come from."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import Stream
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.comma_tables import columns_in_front
from rerail.log_parsers.file_names import named_form, named_form_in_bytes
from rerail.log_parsers.files_in_front import names_in_front
from rerail.log_parsers.front_parts import may_count
from rerail.log_parsers.host_names import is_no_host, looks_like_host, own_words
from rerail.log_parsers.hosts_in_front import hosts_first
from rerail.log_parsers.induced_labels import in_brackets, induce
from rerail.log_parsers.json_records import (
    Fields,
    fields_of,
    is_like_a_record,
    ranks_behind_numbers,
)
from rerail.log_parsers.labels import INDUCED, PATH, Label
from rerail.log_parsers.line_tails import Tail
from rerail.log_parsers.named_after_hosts import named_after_hosts, told_by
from rerail.log_parsers.outputs_of_jobs import hosts_of_outputs
from rerail.log_parsers.prefixes import Origin
from rerail.log_parsers.ranks_of_files import (
    counted_on_each_host,
    hosts_by_folders,
    hosts_by_ranks,
    own_ranks,
    ranks_across_hosts,
)
from rerail.log_parsers.sections import titled
from rerail.log_parsers.survey import FileSurvey
from rerail.log_parsers.text import clean

_SAMPLE = 400
_FEW_LINES, _HEAD = 80, 160
_MOST_INDUCED = 64  # files; of more than these each has one writer
_RANK_LABEL = lazy(rb"^.{0,60}?\[(?:rank|default)(?P<rank>\d{1,6})\]:", re.MULTILINE)
# srun -l counts tasks; the process behind the number tells its rank: PyTorch's errors, torchrun's table, Lightning.
_TASK_AND_RANK = lazy(
    rb"^ {0,8}(?P<task>\d{1,6}): (?:"
    rb"(?:\[default(?P<local>\d{1,3})\]:)?(?:\[rank|[^\[\]]{0,60}\bGLOBAL_RANK: )(?P<rank>\d{1,6})[\],]"
    rb"| {1,3}rank {2,8}: (?P<rank2>\d{1,6}) \(local_rank: (?P<local2>\d{1,3})\))"
)
_TASK = lazy(rb"^ {0,8}(?P<task>\d{1,6}): ")
_TASK_AND_AGENT = lazy(rb"^ {0,8}\d{1,6}: [^\[]{0,80}\btorch[./]distributed[./]elastic[./]")
_NCCL_HOST = lazy(rb"(?:^|[\s\]:])(?P<host>[A-Za-z][\w.-]{1,80}):\d+:\d+ \[\d+\] ")
# torchrun's table of failures names the host of its agent.
_TABLE_HOST = lazy(rb"\s{2}host {2,8}: (?P<host>[A-Za-z][\w.-]{1,80})\s*$")
_DESCRIBED = lazy(rb"^Node: {2,}(?P<node>[A-Za-z0-9][\w.-]*)(?:/[\da-fA-F.:]*)?\s*$")
# DeepSpeed's launcher lists the hosts of the job; pdsh, which it starts, puts the host in front of each line.
_MAPPED = lazy(rb"'(?P<host>[A-Za-z][\w.-]{0,80})': \[\d{1,6}(?:, \d{1,6})*\]")
_MAPS = (b"global_rank_mapping=", b"WORLD INFO DICT: ")
# No logger labels the frames of a traceback: what stands in front of them is put there for each line.
_FRAMED = lazy(rb'^(?P<host>(?=[\w.-]*[\d-])[A-Za-z][\w.-]{1,80}): {3}File "')
# Nor does one call a host what a program or a launcher further on calls its host.
_FRONT = lazy(rb"^(?P<host>(?=[\w.-]*[\d-])[A-Za-z][\w.-]{1,80})(?:: | {1,8}\| )")
_WORD = lazy(rb"^(?P<word>[A-Za-z][A-Za-z-]{1,40}): ")
_SAID_HOST = lazy(
    rb"(?:\bon (?:(?:host|node) |(?=[\w.-]*\d))|# ?on |\bhost(?:name)? {0,8}[:=] {0,2})"
    rb"(?P<host>(?=[\w.-]*[\d-])[A-Za-z][\w.-]{0,79}\w)\b"
)
_LEAST_FRONTS = 2
_DIGITS = lazy(r"\d+")
_PART = lazy(r"[/_]|\.(?!\d)")
_PATH_PARTS = lazy(r"[/_.-]")


def content_origins(surveys: Sequence[FileSurvey], *, year: int) -> dict[str, Origin]:
    """Return by file name the origins that differ from what the path alone tells.

    - In a single-node tree of torchrun, or folder of Paddle's launcher, the local rank is the rank.
    - `worker-3.log` is rank 3 unless its lines carry labels of other ranks: then it is a pod.
    - `kubectl describe pod` names the node of its pod at its top.
    - A name that is a title, `dmesg -T (gn-12)`, tells what it does as a heading inside a file.
    - Words in front of the lines of a merged file are hosts where a launcher lists them, where they stand
      in front of the frames of a traceback too, or where a line further on calls one of them a host.
    - Numbers that srun puts in front of lines count its tasks; they are no ranks where several are behind one.
    - A label that no pattern knows is learned from the lines that carry it.
    - `run_gn-12_9.err` is of rank 9 on gn-12 where the labels inside say so of two such files, and of none otherwise.
    - Files of local ranks that call themselves by ranks are those of the ranks; files that hold all ranks between them
      are those of the hosts.
    - A file without a node whose name holds a host that the other lines name is that host's, and so are those called alike.
    """
    found = _single_tree(surveys)
    hosts: set[str] = set()
    for one in surveys:
        sample = _Sample.of(one)
        hosts |= {m["host"].decode("utf-8", "replace") for m in _in(sample, b" NCCL ", _NCCL_HOST)}
        hosts |= {m["host"].decode("utf-8", "replace") for m in _in(sample, b" host ", _TABLE_HOST)}
    short = {host.split(".")[0] for host in hosts if re.search(r"\d", host)}
    machines = short | {one.source.origin.node or "" for one in surveys}
    fronts = _fronts_of_names([one.source.origin.node for one in surveys], short)
    for one in surveys:
        name, origin = one.source.name, found.get(one.source.name, one.source.origin)
        changed, sample = origin, _Sample.of(one)
        if origin.rank is not None and origin.local_rank is None:
            labels = {int(m["rank"]) for m in _in(sample, b"]:", _RANK_LABEL)} - {origin.rank}
            if labels:
                changed = replace(changed, rank=None)
        if changed.node is not None:
            changed = replace(changed, node=_as_lines_write_it(changed.node, fronts, short))
        if changed.node is None and origin.stream is not Stream.SCHEDULER:
            changed = _with_node(changed, one, sample, short)
        listed = _hosts_listed(sample)
        told = listed or origin.rank is not None or origin.local_rank is not None
        if len(surveys) <= _MOST_INDUCED and not told:
            fields, messages = fields_of(_records(one))
            heads = _heads(one)
            own = (
                _in_front_of_grep(sample)
                or columns_in_front(heads, year=year)
                or induce(heads, year=year)
                or in_brackets(heads, machines)
                or induce(messages, year=year)
                or hosts_first(heads, year=year)
            )
            changed = _learned(changed, own, one.facts.tail)
            # Of records that were not told apart by their fields only the beginnings of many are known.
            if fields and (len(one.kept) <= 2 * _SAMPLE or one.facts.by_records):
                above = _above_places(one, fields)
                changed = replace(changed, records=fields, above_places=above)
        if _tasks_hold_ranks(sample):
            changed = replace(changed, tasks_hold_ranks=True)
        if words := listed or (frozenset() if changed.induced else _hosts_in_front(sample)):
            changed = replace(changed, hosts=words)
        if changed is not origin:
            found[name] = changed
    _called_after_tasks(surveys, found)
    _called_after_hosts(surveys, found, short)
    _called_after_own_words(surveys, found)
    _hosts_by_folders(surveys, found)
    _hosts_by_ranks(surveys, found)
    _counted_on_each_host(surveys, found)
    _written_by_jobs(surveys, found)
    _ranks_of_processes(surveys, found)
    _numbered_across_hosts(surveys, found)
    return found


def _learned(origin: Origin, labels: tuple[Label, ...], tail: Tail | None) -> Origin:
    """Return the origin with what the lines of a file have in common in front of messages, and behind them."""
    origin = replace(origin, induced=labels) if labels else origin
    return origin if tail is None else replace(origin, tail=tail)


def _above_places(one: FileSurvey, fields: Fields) -> int | None:
    """Return by how much the ranks of a file are above the numbers of the pods that wrote its records."""
    if fields.place is None or fields.rank is not None or fields.local is not None:
        return None
    lines = (raw for raw in one.kept.values() if b"Rank " in raw)
    return ranks_behind_numbers(map(clean, lines), fields)


def _hosts_by_ranks(surveys: Sequence[FileSurvey], found: dict[str, Origin]) -> None:
    """Give files that hold all ranks of a job between them to the hosts that they are called after."""
    origins = {one.source.name: found.get(one.source.name, one.source.origin) for one in surveys}
    free = [one for one in surveys if _is_free(origins[one.source.name])]
    if not 1 < len(free) <= _MOST_INDUCED:
        return
    files = [(one.source.name, _lines_of(one)) for one in free]
    for name, host in hosts_by_ranks(files).items():
        found[name] = replace(origins[name], node=host)


def _numbered_across_hosts(surveys: Sequence[FileSurvey], found: dict[str, Origin]) -> None:
    """Give files that are numbered on from host to host to those ranks."""
    origins = {one.source.name: found.get(one.source.name, one.source.origin) for one in surveys}
    free = [
        (name, origin.node)
        for name, origin in origins.items()
        if origin.rank is None and origin.stream is None
    ]
    if not 1 < len(free) <= _MOST_INDUCED:
        return
    for name, (host, rank) in ranks_across_hosts(free).items():
        found[name] = replace(
            origins[name], node=origins[name].node or host, rank=rank, local_rank=None
        )


def _written_by_jobs(surveys: Sequence[FileSurvey], found: dict[str, Origin]) -> None:
    """Give files to the hosts of the jobs that wrote them, where records of the scheduler say so, each of one file."""
    told: dict[str, set[str]] = defaultdict(set)
    for one in surveys:
        if b"StdOut=" in _Sample.of(one).text:
            for name, nodes in hosts_of_outputs(_lines_of(one)).items():
                told[name] |= nodes
    for one in surveys if told else ():
        origin = found.get(one.source.name, one.source.origin)
        hosts = told.get(one.source.name.rpartition("/")[2], set())
        if origin.node is None and len(hosts) == 1:
            found[one.source.name] = replace(origin, node=next(iter(hosts)))


def _hosts_by_folders(surveys: Sequence[FileSurvey], found: dict[str, Origin]) -> None:
    """Give files to the hosts that their folders are called after, where those part the ranks between them."""
    origins = {one.source.name: found.get(one.source.name, one.source.origin) for one in surveys}
    if any(origin.node is not None for origin in origins.values()):
        return
    of_ranks = [(name, origin.rank) for name, origin in origins.items()]
    for name, host in hosts_by_folders(of_ranks).items():
        found[name] = replace(origins[name], node=host)


def _ranks_of_processes(surveys: Sequence[FileSurvey], found: dict[str, Origin]) -> None:
    """Give the files of single processes to the ranks by which their processes call themselves."""
    own = [
        (one, origin)
        for one in surveys
        if (origin := found.get(one.source.name, one.source.origin)).local_rank is not None
        and origin.rank is None
    ]
    if not 1 < len(own) <= _MOST_INDUCED:
        return
    files = [(origin.node, origin.local_rank or 0, _lines_of(one)) for one, origin in own]
    for (one, origin), rank in zip(own, own_ranks(files), strict=True):
        if rank is not None:
            found[one.source.name] = replace(origin, rank=rank)


def _counted_on_each_host(surveys: Sequence[FileSurvey], found: dict[str, Origin]) -> None:
    """Take numbers that stand in the names of files of several hosts for local ranks: `n1/rank_3.log`, `n2/rank_3.log`."""
    files = {one.source.name: found.get(one.source.name, one.source.origin) for one in surveys}
    if not counted_on_each_host((origin.rank, origin.node) for origin in files.values()):
        return
    for name, origin in files.items():
        if origin.rank is not None and origin.node is not None:
            found[name] = replace(origin, rank=None, local_rank=origin.rank)


def _with_node(origin: Origin, one: FileSurvey, sample: _Sample, hosts: set[str]) -> Origin:
    """Return the origin of a file with the node that its content, or its name beside the other lines, tells."""
    name = one.source.name
    node = _described(one, sample) or hosts & set(_PART.split(name))
    if len(node) == 1:
        return replace(origin, node=node.pop())
    told = titled(name)
    return (
        replace(origin, node=told.node, place=origin.place or told.place)
        if told is not None
        else origin
    )


def _called_after_tasks(surveys: Sequence[FileSurvey], found: dict[str, Origin]) -> None:
    """Give files that are called after ranks, or hosts and ranks, to those, where the lines of two of them bear it out."""
    series: dict[str, list[tuple[FileSurvey, re.Match[str]]]] = defaultdict(list)
    for one in surveys:
        name, origin = one.source.name, found.get(one.source.name, one.source.origin)
        match = named_form("srun_file").search(name)
        if match is None or not looks_like_host(match["host"]):
            match = named_form("numbered_file").search(name)
        if match is None or origin.rank is not None or origin.local_rank is not None:
            continue
        host = match.groupdict().get("host") or ""
        front = name[: match.start("host" if host else "rank")]
        series[front + _DIGITS.sub("0", host)].append((one, match))
    for members in series.values():
        told = [(_own_labels(_Sample.of(one)), int(match["rank"])) for one, match in members]
        borne_out = {rank for ranks, rank in told if rank in ranks}
        if len(borne_out) < _LEAST_FRONTS or any(ranks - {rank} for ranks, rank in told):
            continue
        for one, match in members:
            origin = found.get(one.source.name, one.source.origin)
            node = origin.node or match.groupdict().get("host")
            found[one.source.name] = replace(origin, rank=int(match["rank"]), node=node)


def _own_labels(sample: _Sample) -> set[int]:
    return {int(m["rank"]) for m in _in(sample, b"]:", _RANK_LABEL)}


def _called_after_hosts(
    surveys: Sequence[FileSurvey], found: dict[str, Origin], hosts: set[str]
) -> None:
    """Give the files of a few that are called after hosts, as the lines bear out, to those hosts."""
    origins = [found.get(one.source.name, one.source.origin) for one in surveys]
    free = [_is_free(origin) for origin in origins]
    if len(surveys) > _MOST_INDUCED or not any(free):
        return
    told = [told_by(one.kept[number] for number in _sampled(one)) for one in surveys]
    known = hosts | {origin.node for origin in origins if origin.node is not None}
    names = named_after_hosts([one.source.name for one in surveys], told, known)
    for one, origin, name, may in zip(surveys, origins, names, free, strict=True):
        if may and name is not None:
            found[one.source.name] = replace(origin, node=name)


def _called_after_own_words(surveys: Sequence[FileSurvey], found: dict[str, Origin]) -> None:
    """Give files to the hosts without a number in their names that stand in their paths, where their lines say so.

    `hera/rank3/current` is of hera where its process says that it is on hera, and another file is of another host so.
    """
    if not 1 < len(surveys) <= _MOST_INDUCED:
        return
    said: set[str] = set()
    named = [set(_PATH_PARTS.split(one.source.name)) for one in surveys]
    of_all = set.intersection(*named)  # what all are called tells none apart
    parts = [words - of_all for words in named]
    for one, words in zip(surveys, parts, strict=True):
        if any(word.isalpha() for word in words):
            own = {word for number in _sampled(one) for word in own_words(one.kept[number][:_HEAD])}
            said |= own & words
    for one, words in zip(surveys, parts, strict=True) if len(said) > 1 else ():
        origin = found.get(one.source.name, one.source.origin)
        if origin.node is None and len(host := words & said) == 1:
            found[one.source.name] = replace(origin, node=host.pop())


def _is_free(origin: Origin) -> bool:
    return (
        origin.node is None
        and origin.place is None
        and origin.rank is None
        and origin.stream is not Stream.SCHEDULER
    )


def _fronts_of_names(nodes: Sequence[str | None], hosts: set[str]) -> set[str]:
    """Return what stands before the host in names of files: `train-` of train-dgx1.out, where dgx1 is a host."""
    return {
        node.removesuffix(host)
        for node in nodes
        for host in hosts
        if node is not None and node != host and node.endswith(f"-{host}")
    }


def _as_lines_write_it(node: str, fronts: Iterable[str], hosts: set[str]) -> str:
    """Return the host of `train-dgx1.out`, which is dgx1, and of `node17.log` beside lines of node017."""
    node = node.removeprefix(next((front for front in fronts if node.startswith(front)), ""))
    if node in hosts:
        return node
    alike = {host for host in hosts if _unpadded(host) == _unpadded(node)}
    return alike.pop() if len(alike) == 1 else node


def _unpadded(host: str) -> str:
    """Return a host's name with its numbers without leading zeros."""
    return _DIGITS.sub(lambda number: str(int(number[0])), host)


def _heads(one: FileSurvey) -> list[str]:
    """Return the fronts of a sample of a file's lines: from its start and its end, in order."""
    numbers = sorted(one.kept)
    if len(numbers) > 2 * _FEW_LINES:
        numbers = numbers[:_FEW_LINES] + numbers[-_FEW_LINES:]
    return [clean(one.kept[number][:_HEAD]) for number in numbers]


def _records(one: FileSurvey) -> list[str]:
    """Return the sampled lines of a file, where most of them end as records in JSON do, or only those that do."""
    lines = [line for number in _sampled(one) if (line := one.kept[number].rstrip())]
    ended = [line for line in lines if is_like_a_record(line)]
    return list(map(clean, lines if 2 * len(ended) >= len(lines) else ended))


def _hosts_in_front(sample: _Sample) -> frozenset[str]:
    hosts = {m["host"].decode() for m in _in(sample, b':   File "', _FRAMED)}
    found = {host for host in hosts if not is_no_host(host)}
    fronts = Counter(m["host"].decode() for m in _in(sample, b" ", _FRONT))
    words = {host for host, count in fronts.items() if count >= _LEAST_FRONTS and may_count(host)}
    if len(own := _own_fronts(sample)) > 1:
        found |= own
    if not words:
        return frozenset(found)
    said = {m["host"].decode() for m in _in(sample, b"o", _SAID_HOST)} & words
    series = {_DIGITS.sub("0", host) for host in said}
    return frozenset(found | {host for host in words if _DIGITS.sub("0", host) in series})


def _own_fronts(sample: _Sample) -> set[str]:
    """Return the words without a number in front of lines that say of themselves to be on a host of that name."""
    found = set()
    for head in sample.heads:
        # Most lines say of no host; a look for the words costs next to nothing.
        if (b" on " in head or b"host" in head) and (match := _WORD.match(head)) is not None:
            found |= {match["word"].decode()} & own_words(head)
    return found


@lru_cache(maxsize=1)
def _starts_several() -> tuple[bytes, ...]:
    """Return the words of launchers whose tasks are no ranks."""
    return tuple(word.encode() for word in load_cached(PATH)["starts_several"])


def _lines_of(one: FileSurvey) -> Iterator[bytes]:
    return (one.kept[number] for number in _sampled(one))


def _in_front_of_grep(sample: _Sample) -> tuple[Label, ...]:
    """Return the labels of lines behind the names of files, which tell a rank by themselves or as srun was to name them."""
    if (own := names_in_front(sample.heads)) or b"%t" not in sample.text:
        return own
    told = {(m["between"], m["end"]) for m in _in(sample, b"%t", named_form_in_bytes("srun_says"))}
    if len(told) != 1 or any(word in sample.text for word in _starts_several()):
        return ()
    between, end = (re.escape(part.decode()) for part in told.pop())
    name = rf"(?P<node>[A-Za-z][\w.-]{{0,80}}?){between}(?P<rank>\d{{1,6}}){end}"
    return (Label(INDUCED, "own", rf"(?:[\w./-]{{0,120}}/)?{name}[:-](?:\d{{1,7}}[:-])?(?=\S)"),)


def _tasks_hold_ranks(sample: _Sample) -> bool:
    """Tell whether the number in front counts tasks of several ranks each.

    It does where several ranks, or one behind a local rank above 0, are behind one number, where a rank is higher than
    all numbers, and where torchrun's agent is a task, unless the ranks that its processes tell are the numbers: of tasks
    that hold several ranks, none but the first holds the rank of its own number alone.
    """
    ranks: dict[int, set[int]] = defaultdict(set)
    above = False
    for match in _in(sample, b": ", _TASK_AND_RANK):
        ranks[int(match["task"])].add(int(match["rank"] or match["rank2"]))
        above = above or int(match["local"] or match["local2"] or 0) > 0
    own = all(found == {task} for task, found in ranks.items())
    if own and sum(task > 0 for task in ranks) > 1:
        return False
    if above or any(len(found) > 1 for found in ranks.values()):
        return True
    tasks = [int(match["task"]) for match in _in(sample, b": ", _TASK)] if ranks else []
    if tasks and max(max(found) for found in ranks.values()) > max(tasks):
        return True
    alike = any(task > 0 and found == {task} for task, found in ranks.items())
    return not alike and any(_in(sample, b"elastic", _TASK_AND_AGENT))


def _hosts_listed(sample: _Sample) -> frozenset[str]:
    hosts: set[str] = set()
    for word in _MAPS:
        for match in _in(sample, word, _MAPPED):
            hosts |= {m["host"].decode() for m in _MAPPED.finditer(match.string)}
    return frozenset(hosts)


def _described(one: FileSurvey, sample: _Sample) -> set[str]:
    """Return the node of the pod that a file describes from its top on; further down it is that of one section."""
    first = one.kept.get(1, b"")
    asked = first.startswith((b"$ kubectl", b"# kubectl")) and b" describe " in first
    if not (asked or first.startswith(b"Name:")):
        return set()
    return {m["node"].decode() for m in _in(sample, b"Node: ", _DESCRIBED)}


@dataclass(frozen=True, slots=True)
class _Sample:
    """The fronts of a file's first and last kept lines, one by one and together."""

    heads: list[bytes]
    text: bytes

    @classmethod
    def of(cls, one: FileSurvey) -> _Sample:
        heads = [one.kept[number][:400] for number in _sampled(one)]
        return cls(heads, b"\n".join(heads))


def _in(sample: _Sample, word: bytes, pattern: re.Pattern[bytes]) -> list[re.Match[bytes]]:
    """Return the matches on a sample of a file's lines."""
    # A look for the word first: hundreds of rank files take no noticeable time.
    if word not in sample.text:
        return []
    return [m for head in sample.heads if word in head and (m := pattern.search(head)) is not None]


def _sampled(one: FileSurvey) -> list[int]:
    """Return the numbers of the first and the last kept lines of a file."""
    numbers = sorted(one.kept)
    return numbers if len(numbers) <= 2 * _SAMPLE else numbers[:_SAMPLE] + numbers[-_SAMPLE:]


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
