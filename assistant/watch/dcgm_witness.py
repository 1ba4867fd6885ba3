"""Asks DCGM about the nodes of a failed attempt, through the sources that the site names.

What makes a source trustworthy: the site wrote its address into the policy file, rerail reads it as
itself, and nobody who runs jobs can stand in its place (`trusted_file`, `site_policy.Dcgm`). Names
of nodes come from the scheduler; a label of a sample can only confirm them.
"""

from __future__ import annotations

import glob
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rerail.assistant.watch.trusted_file import read_trusted
from rerail.domain.diagnosis import Action, Layer
from rerail.errors import ClusterError, EvidenceError
from rerail.knowledge_base.catalogues import lookup
from rerail.knowledge_base.store.clock import to_iso
from rerail.knowledge_base.taxonomy import leaves
from rerail.log_parsers.text import clean
from rerail.recovery.policy import OWNER_MUST_ACT
from rerail.recovery.site_policy import Dcgm
from rerail.recovery.situation import Attested
from rerail.tools.clusters.command import run_command
from rerail.tools.clusters.host_list import is_node_name
from rerail.tools.clusters.slurm_records import AttemptRecord
from rerail.tools.dcgm.counters import AFTER_S, GpuFault, find_faults
from rerail.tools.dcgm.exposition import Sample, looks_like_exposition, read_exposition
from rerail.tools.dcgm.fetch import Access, ask_prometheus, get, node_of
from rerail.tools.dcgm.reports import looks_like_report, read_report

MOST_BYTES = 64 << 20
AT_ONCE = 16
HARDWARE = (Action.DRAIN_NODE, Action.EXCLUDE_NODE)
LEAF = {
    "ecc": "gpu_ecc_uncorrectable",
    "row_remap": "gpu_row_remap",
    "nvlink": "nvlink_error",
    "pcie": "gpu_pcie_error",
    "vanished": "gpu_fallen_off_bus",
    "health": "gpu_internal_fault",
    "diagnostic": "gpu_internal_fault",
}


@dataclass
class DcgmFacts:
    """What DCGM attests, as lines for the record, and what could not be read or dated."""

    attested: list[Attested] = field(default_factory=list)
    lines: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    problems: list[str] = field(default_factory=list)


@dataclass
class _Read:
    """Samples and reports of one source about one node."""

    samples: list[tuple[str, Sample]] = field(default_factory=list)
    faults: list[GpuFault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def dcgm_facts(
    attempt: AttemptRecord,
    dcgm: Dcgm,
    *,
    reader: Sequence[str] = (),
    job_folder: str | None = None,
    clock: Callable[[], float] = time.time,
) -> DcgmFacts:
    """Ask every source about the nodes of an attempt; what cannot be read becomes a problem.

    Args:
        attempt: as the scheduler reports it; without a start nothing can be dated.
        dcgm: the sources.
        reader: what is put before commands, the reader's identity.
        job_folder: the job's working folder, in which nothing is a witness.
        clock: seconds since the epoch.
    """
    facts = DcgmFacts()
    if not dcgm.configured:
        return facts
    if attempt.start is None:
        facts.problems.append("dcgm: not asked, since the start of the attempt is not known")
        return facts
    ended_s = min(clock(), (attempt.end or clock()) + AFTER_S)
    reads = list(_ask_nodes(attempt, dcgm, reader, job_folder, clock))
    if dcgm.prometheus:
        reads.append(_ask_server(attempt, dcgm, attempt.start, ended_s))
    samples: dict[str, list[Sample]] = defaultdict(list)
    faults: list[GpuFault] = []
    for one in reads:
        facts.problems += one.problems
        faults += one.faults
        for node, sample in one.samples:
            samples[node].append(sample)
    faults += find_faults(samples, attempt.start, attempt.end or ended_s)
    for fault in _once(faults):
        _weigh(fault, facts)
    return facts


def _ask_nodes(
    attempt: AttemptRecord,
    dcgm: Dcgm,
    reader: Sequence[str],
    job_folder: str | None,
    clock: Callable[[], float],
) -> Iterable[_Read]:
    nodes = [node for node in attempt.nodes if is_node_name(node)]

    def ask(node: str) -> _Read:
        read = _Read()
        for pattern in dcgm.files:
            filled = pattern.replace("{node}", node).replace("{job}", attempt.job)
            for name in sorted(glob.glob(filled)):
                _read_file(Path(name), node, attempt, dcgm, job_folder, read)
        for url in dcgm.exporters:
            try:
                body = get(url.replace("{node}", node), access_of(dcgm))
            except EvidenceError as error:
                read.problems.append(f"dcgm: {error.message}")
                continue
            _take(body.decode(errors="replace"), node, clock(), url, read)
        for command in dcgm.commands:
            filled_command = [word.replace("{node}", node) for word in command]
            try:
                said = run_command((*reader, *filled_command), limit_s=dcgm.limit_s)
            except ClusterError as error:
                read.problems.append(f"dcgm: {error.message}")
                continue
            _take(said, node, clock(), " ".join(command), read)
        return read

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(ask, nodes)


def _read_file(
    path: Path,
    node: str,
    attempt: AttemptRecord,
    dcgm: Dcgm,
    job_folder: str | None,
    read: _Read,
) -> None:
    try:
        raw, written = read_trusted(
            *(path, attempt.uid, dcgm.owners),
            setting="dcgm.owners",
            most_bytes=MOST_BYTES,
            job_folder=job_folder,
        )
    except EvidenceError as error:
        read.problems.append(f"dcgm: {error.message}")
        return
    text = raw.decode(errors="replace")
    if looks_like_report(text) and attempt.start is not None and written < attempt.start:
        return  # of an earlier failure
    _take(text, node, written, str(path), read)


def _take(text: str, node: str, time_s: float, source: str, read: _Read) -> None:
    """Sort what a source of one node said into samples and reports."""
    if looks_like_exposition(text):
        strangers = set()
        for sample in read_exposition(text, time_s):
            named = sample.labels.get("Hostname") or sample.labels.get("hostname") or ""
            if named and node_of(named, [node]) is None:
                strangers.add(named)
                continue
            read.samples.append((node, sample))
        if strangers:
            names = clean(", ".join(sorted(strangers)[:3]).encode())
            read.problems.append(f"dcgm: {source} is of {node} and tells of {names}: left out")
        return
    try:
        read.faults += read_report(text, node, time_s)
    except EvidenceError as error:
        read.problems.append(f"dcgm: {source}: {error.message}")


def _ask_server(attempt: AttemptRecord, dcgm: Dcgm, start_s: float, ended_s: float) -> _Read:
    read = _Read()
    began_s = max(start_s - AFTER_S, ended_s - dcgm.look_back_s)
    try:
        read.samples += ask_prometheus(
            dcgm.prometheus,
            access_of(dcgm),
            selector=dcgm.selector,
            node_label=dcgm.node_label,
            nodes=attempt.nodes,
            began_s=began_s,
            ended_s=ended_s,
        )
    except EvidenceError as error:
        read.problems.append(f"dcgm: {error.message}")
        return read
    silent = set(attempt.nodes) - {node for node, _ in read.samples}
    if silent:
        shown = ", ".join(sorted(silent)[:5])
        read.problems.append(f"dcgm: {dcgm.prometheus} has no samples of {shown} in that time")
    return read


def access_of(dcgm: Dcgm) -> Access:
    """Return how exporters and servers are asked."""
    return Access(dcgm.ca_file, dcgm.token_file, dcgm.limit_s)


def _once(faults: Iterable[GpuFault]) -> list[GpuFault]:
    """Return each fault once, the dated word over the undated one, the earliest first."""
    best: dict[tuple[object, ...], GpuFault] = {}
    for one in sorted(faults, key=lambda f: (not f.dated, not f.failed, f.time_s or 0.0)):
        best.setdefault((one.node, one.gpu, one.kind, one.xid), one)
    return sorted(best.values(), key=lambda f: (f.time_s or 0.0, f.node, f.gpu))


def _weigh(fault: GpuFault, facts: DcgmFacts) -> None:
    """Attest a fault of the machine; what is undated is told, what is the job's own is left out."""
    leaf, action = LEAF.get(fault.kind), None
    if fault.kind == "xid":
        meaning = lookup("xid", str(fault.xid))
        if meaning is None or meaning.role != "initiating" or meaning.leaf is None:
            return
        leaf, action = meaning.leaf, meaning.action
    known = leaves().get(leaf or "")
    if known is None:
        return
    wanted = Action(action or known.action)
    if known.layer is not Layer.INFRASTRUCTURE or wanted in OWNER_MUST_ACT:
        return
    where = f"GPU {fault.gpu}" + (f" ({fault.pci})" if fault.pci else "")
    what = clean(f"{where}: {fault.what}".encode())[:200]
    if not fault.dated:
        facts.problems.append(f"dcgm: {fault.node} {what}; no witness, since it cannot be dated")
        return
    facts.attested.append(
        Attested(
            source="dcgm",
            node=fault.node,
            what=what,
            enough=wanted in HARDWARE and fault.failed,
            gpu=fault.gpu,
            at=fault.time_s,
        )
    )
    facts.lines[fault.node].append(_line(fault, what))


def _line(fault: GpuFault, what: str) -> str:
    """Return one line of the record; an Xid in the kernel's own words, so that it is recognised."""
    at = to_iso(datetime.fromtimestamp(fault.time_s, UTC)) if fault.time_s else "-"
    if fault.xid is not None and fault.pci:
        return f"{at} {fault.node} dcgm: Xid (PCI:{fault.pci}): {fault.xid}, {what}"
    return f"{at} {fault.node} dcgm: {what}"
