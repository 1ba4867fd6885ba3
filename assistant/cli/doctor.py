"""The body of `rerail doctor`: what rerail can do here, by trying it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial

from rerail.assistant.cli.doctor_dcgm import dcgm_findings
from rerail.assistant.watch.site import Site, load_site
from rerail.errors import RerailError
from rerail.recovery.clusters.kubernetes_write import may_do
from rerail.tools.clusters.command import run_command
from rerail.tools.clusters.kubernetes_read import KubernetesReader
from rerail.tools.clusters.slurm_read import SlurmReader
from rerail.tools.clusters.slurm_rest import SlurmRest

Finding = tuple[str, str, str]
"""What was looked at; `ok`, `off` or `bad`; what was found."""


def doctor_command(json_output: bool) -> int:
    """Print findings; 0 if nothing is bad, 1 if something is."""
    found: list[Finding] = []
    try:
        site = load_site()
    except RerailError as error:
        found.append(("settings", "bad", f"{error.message} ({error.hint})"))
        return _show(found, json_output)
    found.append(_policy(site))
    for name, look in (("store", _store), ("approvals", _approvals), ("breaker", _breaker)):
        found.append(_try(name, look, site))
    found.append(_try("embeddings", _embeddings, site))
    found.append(_try("model", _model, site))
    found += _slurm(site)
    found += dcgm_findings(site)
    return _show(found, json_output)


def _show(found: list[Finding], json_output: bool) -> int:
    if json_output:
        print(json.dumps([{"what": a, "state": b, "found": c} for a, b, c in found], indent=1))
    else:
        for what, state, text in found:
            print(f"{state:>4}  {what:<14} {text}")
    return 1 if any(state == "bad" for _, state, _ in found) else 0


def _try(name: str, look: Callable[[Site], tuple[str, str]], site: Site) -> Finding:
    try:
        return (name, *look(site))
    except RerailError as error:
        return (name, "bad", f"{error.message} ({error.hint})")


def _policy(site: Site) -> Finding:
    path = site.settings.policy_file
    if path is None:
        return ("policy", "off", "no policy file: every rule observes, nothing is executed")
    modes = ", ".join(f"{rule.id}: {rule.mode}" for rule in site.policy.rules) or "no rules"
    acting = "dry run" if site.policy.dry_run else "executes"
    return ("policy", "ok", f"{path}: {acting}; {modes}; else {site.policy.default_mode}")


def _store(site: Site) -> tuple[str, str]:
    from rerail.knowledge_base.store.engine import open_store, place, reading
    from rerail.recovery.store import queue

    engine = open_store()
    try:
        with reading(engine) as connection:
            waiting = queue.counts(connection)
        events = ", ".join(f"{count} {state}" for state, count in sorted(waiting.items()))
        return "ok", f"{place(engine)}; events: {events or 'none'}"
    finally:
        engine.dispose()


def _embeddings(site: Site) -> tuple[str, str]:
    from rerail.knowledge_base.retrieval.embedding import chosen_model, embedder_from
    from rerail.knowledge_base.retrieval.vectors import VectorIndex, available

    name = chosen_model(site.settings)
    if not name:
        asked = (
            "RERAIL_EMBEDDING_MODEL=none" if site.settings.embedding_model else "none configured"
        )
        return "off", f"{asked}: similar incidents are searched by words alone"
    if not available():
        return "off", f"{name}, but no ChromaDB: pip install 'rerail[retrieval]'; words alone"
    embedder = embedder_from(site.settings)
    width = len(embedder.embed(["CUDA out of memory"])[0])
    where = site.settings.chroma_url or "in the data folder"
    if site.settings.chroma_url:
        VectorIndex(site.settings, embedder)
    return "ok", f"{name}, {width} numbers a text; vectors {where}"


def _model(site: Site) -> tuple[str, str]:
    from rerail.assistant.agent.endpoint import configured

    if not configured(site.settings):
        return "off", "none configured: the rules and the record answer"
    # Not called: a request costs money at some endpoints.
    return "ok", f"{site.settings.model} at {site.settings.model_url} (not called)"


def _approvals(site: Site) -> tuple[str, str]:
    from rerail.recovery.signing import signing_key

    signing_key(site.data)
    rights = site.policy.approvals
    people = ", ".join(rights.approvers) or "whoever can read the key"
    people += "".join(f"; {kind}: {', '.join(who)}" for kind, who in rights.approvers_of.items())
    return "ok", f"this account can sign; approvers: {people}"


def _breaker(site: Site) -> tuple[str, str]:
    from rerail.knowledge_base.store.engine import open_store, reading
    from rerail.recovery.store import control

    engine = open_store()
    try:
        with reading(engine) as connection:
            why = control.breaker_reason(connection)
    finally:
        engine.dispose()
    return ("bad", f"open: {why} (rerail breaker close REASON)") if why else ("ok", "closed")


def _slurm(site: Site) -> list[Finding]:
    if site.reader is None:
        here = "Slurm's commands are installed here" if shutil.which("scontrol") else "none found"
        return [("scheduler", "off", f"not set (RERAIL_SCHEDULER=slurm); {here}")]
    reader = site.reader
    found: list[Finding] = []
    if not isinstance(reader, SlurmReader):
        return [_try("kubernetes", _kubernetes, site)]
    sockets = site.policy.identities
    for face, path in (("reader", sockets.reader_socket), ("writer", sockets.writer_socket)):
        if path:
            found.append(_try("slurmrestd", partial(_slurmrestd, face, path), site))
    up = reader.controller_up()
    found.append(
        ("slurm", "ok" if up else "bad", _version(site) + ("" if up else ": no controller answers"))
    )
    if not up:
        return found
    found.append(_try("reader", _reader, site))
    found.append(_writer(site))
    return found


def _slurmrestd(face: str, path: str, site: Site) -> tuple[str, str]:
    rest = SlurmRest(path)
    nodes = rest.call("GET", rest.controller("nodes")).get("nodes") or []
    drains = rest.offers("POST", "node/{node_name}")
    offered = "cancels and drains" if drains else "cancels; draining stays with scontrol"
    told = f"; {offered}" if face == "writer" else ""
    return "ok", f"{face} at {path}: speaks {rest.version}, sees {len(nodes)} nodes{told}"


def _version(site: Site) -> str:
    try:
        return f"Slurm {site.reader.version()}" if isinstance(site.reader, SlurmReader) else ""
    except RerailError as error:
        return error.message


def _kubernetes(site: Site) -> tuple[str, str]:
    if not isinstance(site.reader, KubernetesReader):
        return "off", ""
    nodes = site.reader.nodes()
    may = may_do(site.reader.api)
    return "ok", f"sees {len(nodes)} nodes; this identity may " + (", ".join(may) or "only read")


def _reader(site: Site) -> tuple[str, str]:
    if not isinstance(site.reader, SlurmReader):
        return "off", ""
    nodes = site.reader.nodes()
    accounting = "accounting answers"
    try:
        run_command(
            (*site.reader.prefix, "sacct", "-n", "-X", "-S", "now-1minutes"),
            environment=site.reader.environment,
        )
    except RerailError as error:
        accounting = f"no accounting ({error.message.split(': ', 1)[-1]}): attempts before the last are not known"
    who = " ".join(site.reader.prefix) or f"uid {os.getuid()}"
    return "ok", f"as {who}: sees {len(nodes)} nodes; {accounting}"


def _writer(site: Site) -> Finding:
    """Say whether the writer may change nodes: root, SlurmUser and operators may."""
    prefix = site.policy.identities.writer
    who = " ".join(prefix) or f"uid {os.getuid()}"
    try:
        name = run_command((*prefix, "id", "-un")).strip()
        settings = run_command(("scontrol", "show", "config"))
        slurm_user = next(
            (
                line.split("=", 1)[1].split("(")[0].strip()
                for line in settings.splitlines()
                if line.startswith("SlurmUser")
            ),
            "",
        )
        level = ""
        try:
            level = run_command(
                ("sacctmgr", "-n", "-P", "show", "user", name, "format=adminlevel")
            ).strip()
        except RerailError:
            level = ""
    except RerailError as error:
        return ("writer", "bad", f"as {who}: {error.message}")
    may = name in ("root", slurm_user) or level in ("Administrator", "Operator")
    text = f"as {who} ({name}): " + (
        "may drain, requeue and cancel" if may else "may only change its own jobs; cannot drain"
    )
    if not prefix and not site.policy.identities.reader:
        text += "; reader and writer are the same account (identities in the policy file)"
    return ("writer", "ok" if may else "bad", text)
