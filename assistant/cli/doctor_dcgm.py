"""What `rerail doctor` says of DCGM: each source of the policy file is tried on a few nodes."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rerail.assistant.watch.dcgm_witness import access_of
from rerail.assistant.watch.site import Site
from rerail.assistant.watch.trusted_file import read_trusted
from rerail.errors import EvidenceError, RerailError
from rerail.tools.clusters.command import run_command
from rerail.tools.dcgm.counters import FIELDS, XID_COUNT
from rerail.tools.dcgm.exposition import looks_like_exposition, read_exposition
from rerail.tools.dcgm.fetch import ask_prometheus, get
from rerail.tools.dcgm.reports import read_report

Finding = tuple[str, str, str]
TRIED_NODES = 4
ASKED_NODES = 50
RECENT_S = 600.0
NO_NODES = "the scheduler names no nodes to try it on"


def dcgm_findings(site: Site) -> list[Finding]:
    """Return one finding for each source; one `off` where none is named."""
    dcgm = site.policy.dcgm
    if not dcgm.configured:
        return [("dcgm", "off", "no source: it attests nothing (dcgm in the policy file)")]
    try:
        nodes = [one.node for one in site.reader.nodes()] if site.reader is not None else []
    except RerailError as error:
        return [("dcgm", "bad", error.message)]
    if not nodes:
        return [("dcgm", "bad", NO_NODES)]
    some = nodes[:TRIED_NODES]
    found = [_each("files", one, some, partial(_file, site, one)) for one in dcgm.files]
    found += [_each("exporter", one, some, partial(_exporter, site, one)) for one in dcgm.exporters]
    found += [
        _each("command", " ".join(one), some, partial(_command, site, one)) for one in dcgm.commands
    ]
    if dcgm.prometheus:
        found.append(_prometheus(site, nodes[:ASKED_NODES]))
    return found


def _each(kind: str, source: str, nodes: Sequence[str], look: Callable[[str], str]) -> Finding:
    """Try a source on some nodes; bad where it works for none of them."""
    said, wrong = [], []
    for node in nodes:
        try:
            said.append(look(node))
        except RerailError as error:
            wrong.append(error.message)
    text = f"{kind} {source}: {len(said)} of {len(nodes)} nodes tried"
    if said:
        text += f"; {said[0]}"
    if wrong:
        text += f"; {wrong[0]}"
    return ("dcgm", "ok" if said else "bad", text)


def _file(site: Site, pattern: str, node: str) -> str:
    found = sorted(glob.glob(pattern.replace("{node}", node).replace("{job}", "*")))
    if not found:
        raise EvidenceError(f"no such file of {node}", subject=node)
    raw, written = read_trusted(
        *(Path(found[-1]), None, site.policy.dcgm.owners), setting="dcgm.owners", most_bytes=1 << 22
    )
    age = time.time() - written
    return f"{_told(node, raw.decode(errors='replace'))}, {age:.0f} s old"


def _exporter(site: Site, url: str, node: str) -> str:
    access = access_of(site.policy.dcgm)
    return _told(node, get(url.replace("{node}", node), access).decode(errors="replace"))


def _command(site: Site, command: Sequence[str], node: str) -> str:
    words = [word.replace("{node}", node) for word in command]
    reader = site.policy.identities.reader
    return _told(node, run_command((*reader, *words), limit_s=site.policy.dcgm.limit_s))


def _told(node: str, text: str) -> str:
    """Return what a text of a source holds.

    Raises:
        EvidenceError: Nothing of DCGM's.
    """
    if not looks_like_exposition(text):
        return f"{len(read_report(text, node, None))} complaints of dcgmi on {node}"
    names = {one.name for one in read_exposition(text)}
    if not names & set(FIELDS):
        raise EvidenceError(f"{node}: no field of DCGM that tells of faults", subject=node)
    return f"{len(names & set(FIELDS))} of {len(FIELDS)} fields on {node}{_dating(names)}"


def _dating(names: set[str]) -> str:
    return "" if XID_COUNT in names else f" (without {XID_COUNT} an Xid is dated by changes only)"


def _prometheus(site: Site, nodes: Sequence[str]) -> Finding:
    dcgm, now = site.policy.dcgm, time.time()
    try:
        samples = list(
            ask_prometheus(
                dcgm.prometheus,
                access_of(dcgm),
                selector=dcgm.selector,
                node_label=dcgm.node_label,
                nodes=nodes,
                began_s=now - RECENT_S,
                ended_s=now,
            )
        )
    except RerailError as error:
        return ("dcgm", "bad", f"prometheus {error.message}")
    told = {node for node, _ in samples}
    fields = {one.name for _, one in samples}
    text = (
        f"prometheus {dcgm.prometheus}: samples of {len(told)} of {len(nodes)} nodes within "
        f"{RECENT_S:g} s, {len(fields)} of {len(FIELDS)} fields"
    )
    if told:
        return ("dcgm", "ok", text + _dating(fields))
    return ("dcgm", "bad", f"{text}; is {dcgm.selector} with {dcgm.node_label} right?")
