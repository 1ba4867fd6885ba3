"""Finds the evidence of a Slurm job: what Slurm tells of it, the files it names, and logs of its nodes.

Everything that the job's user chose (paths of output, folders) is only read where the file behind it
is a plain one of that user. Logs of the kernel and of Slurm's daemons lie where the policy says, and
where `scontrol show config` says; none that the job's user may have written is read.
"""

from __future__ import annotations

import io
import os
import pwd
import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import BinaryIO, TypeVar

from rerail.assistant.locate.attempt import Chosen, OneJob, choose, one_job
from rerail.assistant.locate.budget import Budget, TimeIsUp, in_words
from rerail.assistant.locate.locator import Found, Item, UnknownJobError
from rerail.assistant.locate.places import MOST_FILES, Place, files_of, places_of
from rerail.assistant.locate.ranges import ranged
from rerail.assistant.locate.system_logs import add_system_logs, on_this_host
from rerail.assistant.watch.evidence import attempt_table, fill
from rerail.assistant.watch.readers import slurm_reader
from rerail.domain.evidence import Stream
from rerail.domain.job import JobEvent, JobRef
from rerail.errors import ClusterError, EvidenceError, RerailError
from rerail.log_parsers.sources import Problem
from rerail.log_parsers.text import clean
from rerail.recovery.live_policy import open_policy
from rerail.recovery.safe_files import open_regular
from rerail.recovery.site_policy import SitePolicy
from rerail.settings import load_settings
from rerail.tools.clusters.attempt_span import CLOCKS_DIFFER_S
from rerail.tools.clusters.slurm_outputs import Outputs, Told
from rerail.tools.clusters.slurm_read import JobFiles, SlurmReader
from rerail.tools.clusters.slurm_records import AttemptRecord, NodeRecord

T = TypeVar("T")
MOST_ITEMS = 5_000
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class _UserFile:
    """A file that a job named: only read where one of these accounts owns it."""

    path: Path
    owners: tuple[int, ...]


class SlurmLocator:
    """Asks Slurm with the reader's identity; writes nothing anywhere."""

    def __init__(self, reader: SlurmReader | None = None, policy: SitePolicy | None = None) -> None:
        self._reader = reader
        self._policy = policy

    def locate(self, job: str, attempt: int | None, budget: Budget) -> Found:
        """Return what there is of a job.

        Raises:
            EvidenceError: Slurm is not installed here, does not know the job, or it has not started.
            UsageError: The id means several jobs, or there was no such attempt.
            ClusterError: Slurm does not answer.
        """
        policy = self._policy or open_policy(load_settings().policy_file).began
        reader = self._reader or _reader(policy, budget, job)
        try:
            one = one_job(budget.call(lambda: reader.shown_ids(job), f"sacct -j {job}"), job)
            known = budget.call(lambda: _attempts(reader, one.number), f"sacct -D -j {one.number}")
        except (ClusterError, UnknownJobError) as error:
            one, known = _without_accounting(reader, budget, job, error)
        chosen = choose(one, known, attempt)
        found = Found(
            chosen.attempt.job,
            chosen.attempt.attempt,
            missing=list(one.missing),
            told=list(chosen.told),
            state=chosen.attempt.state,
            ended=chosen.ended,
        )
        _Search(reader, policy, budget, chosen, found).run()
        return found

    def open(self, item: Item, first: int = 0, length: int | None = None) -> BinaryIO:
        """Return an item's bytes; a file that a job named only where its user owns it.

        Raises:
            RecoveryError: It is no plain file, or somebody else's.
            OSError: It cannot be read.
        """
        if isinstance(item.key, bytes):
            return ranged(io.BytesIO(item.key), first, length)
        assert isinstance(item.key, _UserFile)
        handle = open_regular(item.key.path, owners=item.key.owners, follow=True)
        # One byte, so that a server that has the name and not the data is found out here.
        os.pread(handle, 1, first)
        return ranged(os.fdopen(handle, "rb"), first, length)


def _reader(policy: SitePolicy, budget: Budget, job: str) -> SlurmReader:
    if not any(map(shutil.which, ("sacct", "scontrol"))) and not policy.identities.reader_socket:
        raise EvidenceError(
            f"there is no file or folder {job!r}, and Slurm (sacct, scontrol) is not installed here "
            "to ask for a job of that number",
            subject=job,
            hint=f"on a login node: rerail diagnose {job}",
        )
    return slurm_reader(policy, limit_s=max(1.0, budget.share_s))


def _attempts(reader: SlurmReader, job: str) -> list[AttemptRecord]:
    try:
        return reader.attempts(job)
    except ClusterError as error:
        if error.recoverable:
            raise
        # Without accounting, the controller forgets a job minutes after its end (MinJobAge).
        raise UnknownJobError(error.message, subject=job, hint=f"sacct -D -j {job}") from None


def _without_accounting(
    reader: SlurmReader, budget: Budget, job: str, refusal: RerailError
) -> tuple[OneJob, list[AttemptRecord]]:
    """Return a job as the controller alone knows it, where accounting does not answer or refuses.

    Raises:
        RerailError: the refusal, where the controller does not know the job either.
        UsageError: It is an array of several tasks.
    """
    try:
        ids = budget.call(lambda: reader.queued_ids(job), f"squeue -j {job}")
        one = one_job(ids, job)
        present = budget.call(lambda: reader.current(one.number), f"squeue -j {one.number}")
    except ClusterError:
        raise refusal from None
    if present is None:
        raise refusal
    missing = Problem(
        "accounting",
        f"{clean(refusal.message.encode())}; read without it: earlier starts of the job, and "
        "what its steps were told to write, are not known",
        f"sacct -D -j {job}",
    )
    return replace(one, missing=(*one.missing, missing)), [present]


@dataclass
class _Search:
    """One look for everything of one attempt; what is found and what is not goes to `found`."""

    reader: SlurmReader
    policy: SitePolicy
    budget: Budget
    chosen: Chosen
    found: Found
    seen: set[Path] = field(default_factory=set)

    @property
    def attempt(self) -> AttemptRecord:
        """The attempt whose evidence is looked for."""
        return self.chosen.attempt

    def run(self) -> None:
        """Look everywhere, the scheduler's own word first."""
        job = self.attempt.job
        self._try(self._scheduler_s_word, f"what Slurm says of job {job}")
        outputs = self._try(self._outputs, f"where job {job} was told to write") or Outputs()
        user = self._user()
        event = self._event(user)
        # First, for what both name is read by the site's word.
        self._site_s_patterns(event, outputs.folder)
        for one in outputs.told:
            self._told_file(one, outputs.guessed)
        self._places(outputs, user)
        configured = self._try(self._configured, "where Slurm's daemons write their logs") or []
        ids = dict.fromkeys((job, self.chosen.job.shown))
        add_system_logs(
            event, self.chosen, self.policy.jobs, configured, tuple(ids), self.budget, self.found
        )

    def _try(self, ask: Callable[[], T], what: str) -> T | None:
        try:
            return ask()
        except (RerailError, OSError) as error:
            self._miss(what, *in_words(error))
            return None

    def _miss(self, what: str, why: str, hint: str = "") -> None:
        self.found.missing.append(Problem(clean(what.encode()), clean(why.encode()), hint))

    def _scheduler_s_word(self) -> None:
        attempt = self.attempt
        name = f"sacct -D -j {attempt.job}"
        self._add_text(name, attempt_table(attempt))
        lost = self.budget.call(lambda: lost_nodes(self.chosen, self.reader), "sinfo")
        if lost:
            self._add_text("sinfo", "".join(f"{one}\n" for one in lost))
        # The fuller table, where accounting keeps one, in the place of the short one.
        table = self.budget.call(lambda: self.reader.table(attempt), name)
        if table:
            self.found.items[0] = Item(name, table.encode(), stream=Stream.SCHEDULER)
        if attempt.state == "COMPLETED":
            # Rows between bars are no word on success to the readers: those of steps look the same.
            short = f"sacct -X -j {attempt.job} -o JobID,State,ExitCode"
            self._add_text(short, f"{attempt.job:<12} {attempt.state:>10} {0:>6}:0\n")

    def _add_text(self, name: str, text: str) -> None:
        self.found.items.append(Item(name, text.encode(), stream=Stream.SCHEDULER))

    def _outputs(self) -> Outputs:
        return self.budget.call(
            lambda: self.reader.outputs(self.attempt), f"scontrol show job {self.attempt.job}"
        )

    def _told_file(self, told: Told, guessed: bool) -> None:
        absent = []
        for names in told.files:
            there = [self._take(Path(name)) for name in names]
            if not any(there):
                absent.append(names[0])
        if not absent:
            return
        count = f"{len(absent)} of {len(told.files)} files are" if len(told.files) > 1 else "is"
        why = f"{count} not there: {absent[0]}"
        if guessed and told.whose == "the job":
            why += "; that is the default name, for neither sacct nor a kept script names another"
        self._miss(f"output of {told.whose}", why, f"ls -l {Path(absent[0]).parent}")

    def _take(self, path: Path) -> bool:
        """Take a file that the job named, if it is there and of this attempt; tell whether it is there."""
        if path in self.seen:
            return True
        try:
            facts = self.budget.on_files(lambda: os.stat(path), path)
        except FileNotFoundError:
            return False
        except (TimeIsUp, OSError) as error:
            self._miss(str(path), *in_words(error))
            return True
        self.seen.add(path)
        why = self.chosen.span.of_another(facts.st_mtime)
        if why:
            self._miss(str(path), why, f"rerail diagnose {path}")
        elif len(self.found.items) >= MOST_ITEMS:
            self._miss(str(path), f"left out: {MOST_ITEMS} files of the job are read, and no more")
        else:
            self.found.items.append(Item(str(path), self._user_file(path), file=True))
        return True

    def _user_file(self, path: Path) -> _UserFile:
        # Whose the job is, is not known without accounting: then nobody else's files are read.
        uid = self.attempt.uid
        return _UserFile(path, (os.geteuid() if uid is None or uid < 0 else uid,))

    def _site_s_patterns(self, event: JobEvent, folder: str | None) -> None:
        """Take further logs of jobs, where the site's policy names them."""
        for pattern in self.policy.jobs.logs:
            if folder or "{folder}" not in pattern:
                filled = fill(pattern, event, JobFiles(None, None, folder))
                before = len(self.found.items)
                taken = self._take_all(filled)
                self.found.items[before:] = [
                    replace(one, by_site=True) for one in self.found.items[before:]
                ]
                if not taken:
                    self._miss(f"logs of the job: {filled}", "none is there", "jobs.logs")

    def _places(self, outputs: Outputs, user: pwd.struct_passwd | None) -> None:
        host = socket.gethostname().split(".")[0]
        on_node = host in {node.split(".")[0] for node in self.attempt.nodes}
        empty = []
        job, folder = self.attempt.job, outputs.folder
        home = user.pw_dir if user else None
        script = partial(self._try, self._script, f"the batch script of job {job}")
        for place in places_of(
            job,
            folder,
            outputs.commands,
            on_node=on_node,
            home=home,
            script=lambda: script() or "",
        ):
            taken = [self._take_all(pattern) for pattern in place.patterns]
            taken += [self._take_all(pattern, shared=True) for pattern in place.shared]
            if not sum(taken) and not self._name_unclaimed(place):
                empty.append(place.what)
        if empty:
            where = f"{folder} and the folders in it" if folder else "no folder of the job is known"
            at_home = f", in {home}/.cache/torch" if home else ""
            on = ", in /tmp here" if on_node else ""
            why = f"none: looked in {where}{at_home}{on}"
            self._miss(", ".join(empty), why, "name the files, or jobs.logs in the policy file")

    def _script(self) -> str:
        job = self.attempt.job
        return self.budget.call(
            lambda: self.reader.script(job), f"scontrol write batch_script {job}"
        )

    def _take_all(self, pattern: str, *, shared: bool = False) -> int:
        """Take the files of a pattern, those of others and of other attempts left out without a word."""
        names = self._names(pattern)
        taken = sum(
            path in self.seen or (self._of_its_time(path, shared=shared) and self._take(path))
            for path in map(Path, names)
        )
        if len(names) == MOST_FILES:
            self._miss(pattern, f"more than {MOST_FILES} files; the first ones are read")
        return taken

    def _names(self, pattern: str) -> list[str]:
        root = Path(pattern.split("*")[0]).parent
        ask = partial(self.budget.on_files, partial(files_of, pattern), root)
        return self._try(ask, pattern) or []

    def _of_its_time(self, path: Path, *, shared: bool) -> bool:
        """Tell whether a file is the user's and of this attempt; in a `shared` place a later job writes, too."""
        try:
            facts = self.budget.on_files(partial(os.stat, path), path)
        except (TimeIsUp, OSError):
            return False
        last = self.chosen.span.last_s(CLOCKS_DIFFER_S, CLOCKS_DIFFER_S) if shared else None
        own = facts.st_uid in self._user_file(path).owners
        late = last is not None and facts.st_mtime > last
        return own and not late and not self.chosen.span.of_another(facts.st_mtime)

    def _name_unclaimed(self, place: Place) -> bool:
        """Name the runs of a place that were written in the attempt's time, where no name tells whose they are."""
        runs = [
            run
            for folders, files in place.unclaimed
            for run in self._names(folders)
            if any(
                self._of_its_time(Path(one), shared=True)
                for one in self._names(f"{escape(run)}/{files}")
            )
        ]
        for run in runs[:_MOST_NAMED]:
            why = "written while the job ran, and no name tells whose it is: not read"
            self._miss(f"{place.what}: {run}", why, f"rerail diagnose {run}")
        return bool(runs)

    def _configured(self) -> Sequence[str]:
        logs = self.budget.call(self.reader.daemon_logs, "scontrol show config")
        return [path for one in logs for path in on_this_host(one, self.attempt.nodes)]

    def _event(self, user: pwd.struct_passwd | None) -> JobEvent:
        """Return what fills in the patterns of the policy."""
        name = user.pw_name if user else None
        reference = JobRef(job=self.attempt.job, attempt=self.attempt.attempt, user=name)
        return JobEvent(job=reference, source="locate", state=self.attempt.state, time="")

    def _user(self) -> pwd.struct_passwd | None:
        """Return whose the job is, as this host knows the account."""
        uid = self.attempt.uid
        if uid is None or uid < 0:
            return None
        try:
            return self.budget.call(lambda: pwd.getpwuid(uid), f"getent passwd {uid}")
        except (KeyError, TimeIsUp):
            return None


def lost_nodes(chosen: Chosen, reader: SlurmReader) -> list[str]:
    """Return a line for each node of an attempt that the controller lost during it or just behind it.

    What is wrong with a node today is no word on a job of last week.

    Raises:
        ClusterError: Slurm does not answer.
    """
    if not chosen.attempt.nodes:
        return []
    return [
        f"{node.node} {node.state} {clean(node.reason.encode())}".rstrip()
        for node in reader.nodes(chosen.attempt.nodes)
        if node.lost and _within(node, chosen)
    ]


def _within(node: NodeRecord, chosen: Chosen) -> bool:
    first = chosen.span.first_s(CLOCKS_DIFFER_S)
    if not node.since.isdigit() or first is None:
        return chosen.attempt.state == "NODE_FAIL"
    last = chosen.span.last_s(CLOCKS_DIFFER_S, CLOCKS_DIFFER_S)
    return first <= float(node.since) and (last is None or float(node.since) <= last)
