"""The body of `rerail doctor`: what rerail can do here, by trying it."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rerail.assistant.cli.doctor_dcgm import dcgm_findings
from rerail.assistant.cli.doctor_rights import rights_findings
from rerail.assistant.notify.configured import services_of
from rerail.assistant.watch.site import Site, load_site
from rerail.domain.plan import Mode
from rerail.errors import RerailError
from rerail.log_parsers.redaction import redact
from rerail.recovery.clusters.kubernetes_write import ASKED, may_do
from rerail.tools.clusters.command import run_command
from rerail.tools.clusters.kubernetes_read import KubernetesReader
from rerail.tools.clusters.slurm_read import SlurmReader
from rerail.tools.clusters.slurm_rest import SlurmRest

Finding = tuple[str, str, str]
"""What was looked at; `ok` (tried), `open` (nothing to try it on), `off` or `bad`; what was found."""


def doctor_command(json_output: bool) -> int:
    """Print findings; 0 if nothing is bad, 1 if something is."""
    found: list[Finding] = []
    try:
        site = load_site()
    except RerailError as error:
        found.append(("settings", "bad", f"{error.message} ({error.hint})"))
        return _show(found, json_output)
    found.append(_policy(site))
    looks = (("store", _store), ("audit", _audit), ("approvals", _approvals), ("breaker", _breaker))
    for name, look in looks:
        found.append(_try(name, look, site))
    found.append(_try("spool", _spool, site))
    found.append(_try("messages", _messages, site))
    found.append(_try("TMPDIR", _temporary, site))
    found += _daemons(site)
    found.append(_try("embeddings", _embeddings, site))
    found.append(_try("model", _model, site))
    found += _slurm(site)
    found += dcgm_findings(site)
    return _show(found, json_output)


def _show(found: list[Finding], json_output: bool) -> int:
    # A URL of the settings may hold a password, a server's answer whatever it likes.
    found = [(what, state, redact(text)) for what, state, text in found]
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
    except PermissionError as error:
        return (name, "bad", f"{error.filename}: {error.strerror} (ls -ld {error.filename})")


def _policy(site: Site) -> Finding:
    path = site.settings.policy_file
    if path is None:
        return (
            "policy",
            "off",
            "no policy file is named here: what this account starts only observes",
        )
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
    from rerail.assistant.model_extra import not_installed

    if not configured(site.settings):
        return "off", "none configured: the rules and the record answer"
    if absent := not_installed():
        return "bad", f"{site.settings.model}, but {absent} is missing: pip install 'rerail[agent]'"
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
    if stopped := site.brake().stop_file():
        return "bad", f"{stopped}: nothing is written (remove it)"
    return ("bad", f"open: {why} (rerail breaker close REASON)") if why else ("ok", "closed")


def _audit(site: Site) -> tuple[str, str]:
    """Write an entry and take it back: the audit log can be written, and its chain holds."""
    from rerail.knowledge_base.store.engine import open_store, reading, writing
    from rerail.recovery.store import audit

    class TakeBackError(Exception):
        pass

    engine = open_store()
    try:
        try:
            with writing(engine) as connection:
                audit.note(connection, "doctor", "trial", "doctor")
                raise TakeBackError
        except TakeBackError:
            pass
        with reading(engine) as connection:
            report = audit.verify(connection)
    finally:
        engine.dispose()
    if report.broken_at is not None:
        return "bad", f"the chain is broken at entry {report.broken_at}: {report.why}"
    return "ok", f"can be written (tried, taken back); {report.entries} entries, the chain holds"


def _spool(site: Site) -> tuple[str, str]:
    from rerail.recovery import spool
    from rerail.recovery.safe_files import name_of

    folder = site.data / spool.FOLDER
    if not folder.is_dir():
        return "off", f"{folder} is not there yet: no hook has left an event"
    found = spool.waiting(folder)
    facts = folder.stat()
    names = name_of(facts.st_uid)
    if facts.st_mode & stat.S_IWGRP:
        names += f" and the group {_group(facts.st_gid)}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "bad", f"{folder} cannot be written by this account: taken events would come again"
    strange = f"; {len(found.strange)} entries are no events" if found.strange else ""
    return "ok", f"{len(found.files)} events wait; may leave some: {names}{strange}"


def _group(gid: int) -> str:
    import grp

    try:
        found = grp.getgrgid(gid)
    except KeyError:
        return str(gid)
    return f"{found.gr_name} ({', '.join(found.gr_mem)})" if found.gr_mem else found.gr_name


def _messages(site: Site) -> tuple[str, str]:
    """Open the file of messages to append nothing; a command is looked for and not run."""
    target = site.policy.notify
    said = []
    if target.file:
        path = Path(target.file).expanduser()
        try:
            with path.open("a", encoding="utf-8"):
                pass
        except OSError as error:
            return "bad", f"{path}: {error.strerror}: nobody would be told"
        said.append(f"{path} can be written (tried)")
    if target.command:
        if shutil.which(target.command[0]) is None:
            return "bad", f"{target.command[0]} is not installed here: nobody would be told"
        said.append(f"{target.command[0]} is there (not run)")
    services, wrong = services_of(target, site.settings)
    if wrong:
        return "bad", f"{wrong[0].message}: nobody would be told this way"
    said += [f"{one.name} is set up (rerail notify --test)" for one in services]
    return ("ok", "; ".join(said)) if said else ("off", "notify in the policy file is empty")


def _temporary(site: Site) -> tuple[str, str]:
    import tempfile

    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
        return "ok", f"{tempfile.gettempdir()} can be written (tried)"
    except OSError as error:
        place = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - named, not written to
        return "bad", f"TMPDIR {place} cannot be used by this account: {error.strerror}"


def _daemons(site: Site) -> list[Finding]:
    """Say which daemons run, by which policy, and whether what they act by is still in the file."""
    import time

    from rerail.assistant.watch.presence import changed_since, running
    from rerail.knowledge_base.store.engine import open_store, reading

    try:
        engine = open_store()
        try:
            with reading(engine) as connection:
                found = list(running(connection, time.time()))
        finally:
            engine.dispose()
    except RerailError as error:
        return [("daemon", "bad", error.message)]
    if not found:
        return [("daemon", "off", "no rerail watch runs on this store")]
    told: list[Finding] = []
    for one in found:
        if why := changed_since(one):
            told.append(("daemon", "bad", f"{one.name}: no step runs by itself: {why}"))
        else:
            told.append(("daemon", "ok", f"{one.name} acts by {one.policy or 'no policy file'}"))
    return told


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
    try:
        found += rights_findings(site, reader)
    except RerailError as error:
        found.append(("writer", "bad", error.message))
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
    acts = any(rule.mode is not Mode.OBSERVE for rule in site.policy.rules)
    missing = [what for what in ASKED if what not in may]
    told = f"sees {len(nodes)} nodes; this identity may " + (", ".join(may) or "only read")
    if acts and missing:
        return "bad", f"{told}; missing rights (kubectl auth can-i): {', '.join(missing)}"
    return "ok", told


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
