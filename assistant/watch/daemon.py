"""The daemon: takes events from the spool and the scheduler, works them off, moves plans forward.

Every round is whole in itself, and everything between rounds is in the store: it may be killed at
any moment and started again, and several may run beside each other.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rerail.assistant.notify import site_words
from rerail.assistant.watch import presence
from rerail.assistant.watch.evidence import prune_evidence, prune_files
from rerail.assistant.watch.intake import CURSOR, Intake, iso_of
from rerail.assistant.watch.progress import step_of_live_logs
from rerail.assistant.watch.site import Site, explain
from rerail.assistant.watch.waste import Waste
from rerail.domain.job import JobEvent, JobRef
from rerail.errors import ClusterError, RerailError
from rerail.knowledge_base.store.engine import reading, writing
from rerail.recovery.executor import is_gone, worker_name
from rerail.recovery.mitigation.orders import Measured
from rerail.recovery.store import audit, control, outbox, queue
from rerail.recovery.store.queue import SLOW, STALLED
from rerail.tools.clusters.kubernetes_pods import PodKeeper, PodWatch
from rerail.tools.clusters.kubernetes_read import KubernetesReader
from rerail.tools.clusters.kubernetes_watch import KubernetesWatch, NodeWatch
from rerail.tools.clusters.slurm_records import AttemptRecord

OVERLAP_S = 300.0
BATCH = 16
AT_ONCE = 4
"""Events of one turn: between two turns plans go forward and newer events are looked at."""
CLOCK_JUMP_S = 30.0


@dataclass
class Daemon(Intake):
    """One `rerail watch`: its rounds."""

    poll_s: float = 15.0
    stop: bool = False
    reload: bool = False
    load: Callable[[], Site] | None = None
    _polled: float = -math.inf
    _tidied: float = -math.inf
    _announced: float = -math.inf
    _told_why: str = ""
    _steps: dict[str, tuple[int | None, float]] = field(default_factory=dict)
    _waste: dict[str, Waste] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._equip()
        self.name = worker_name()
        self._offset = self.clock() - self.steady()
        super().__post_init__()
        if isinstance(self.site.reader, KubernetesReader):
            self.stream = KubernetesWatch(self.site.reader, self.say)
            self._keep_pods(self.site.reader, self.stream)
            self.stream.kinds.append(
                NodeWatch(
                    self.site.reader, "Node", lambda heard: None, self.say, lost=self.lost.put
                )
            )

    def _equip(self) -> None:
        self.worker = self.site.worker(self.engine, self.clock)
        self.executor = self.site.executor(self.engine, self.clock, self.say)

    def _keep_pods(self, reader: KubernetesReader, stream: KubernetesWatch) -> None:
        """Let failed pods be written down, and be read where the server has them no longer."""
        keeper = PodKeeper(self.site.data / "pods")
        reader.kept = keeper
        stream.kinds.append(PodWatch(reader, "Pod", lambda heard: None, self.say, keeper=keeper))

    def run(self, interval_s: float) -> None:
        """Run rounds until a signal asks to stop; the round under way is finished."""

        def end(number: int, frame: FrameType | None) -> None:
            self.stop = True

        def again(number: int, frame: FrameType | None) -> None:
            self.reload = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        signal.signal(signal.SIGHUP, again)
        if self.stream is not None:
            self.stream.start()
        while not self.stop:
            busy = self.round()
            if not busy and not self.stop:
                time.sleep(interval_s)
        if self.stream is not None:
            self.stream.end()
        self._whole("store", self._leave)

    def _leave(self) -> int:
        with writing(self.engine) as connection:
            presence.leave(connection, self.name)
        return 0

    def round(self) -> bool:
        """Do everything that is due once; return whether there may be more at once.

        Each part is on its own: a full disk that keeps one from working must not end the others, and
        is called what it is.
        """
        if self.reload:
            self._read_again()
        self._whole("store", self._announce)
        self._whole("clock", self._look_at_clock)
        self._whole("tidying", self.tidy)
        took = self._whole("spool", self.take_spool)
        took += self._whole("triggers", self.follow_triggers)
        took += self._whole("stream", self.take_stream)
        self._whole("poll", self.poll)
        done = moved = 0
        for _ in range(BATCH // AT_ONCE):
            worked = self._whole("events", self.work_off)
            moved += self.advance()
            done += worked
            if worked < AT_ONCE or self.stop:
                break
            took += self._whole("spool", self.take_spool)
        return took + done + moved > 0

    def _whole(self, part: str, work: Callable[[], int | None]) -> int:
        """Do one part of a round; a failure is said once, by its own name, and the end of it too."""
        try:
            done = work() or 0
        except ClusterError as error:
            what = "the scheduler does not answer" if error.recoverable else "the scheduler refuses"
            self._say_once(part, f"{what}: {explain(error)}")
        except RerailError as error:
            self._say_once(part, f"{part}: {explain(error)}")
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            self._say_once(part, f"{part}: {place}{error.strerror or error}")
        except Exception as error:  # a scheduler's odd answer must not end the daemon
            self._say_once(part, f"{part}: a bug in rerail: {type(error).__name__}: {error}")
        else:
            if self._said.pop(part, None):
                again = "the scheduler answers again" if part == "poll" else f"{part}: works again"
                self.say(again)
            return done
        return 0

    def _read_again(self) -> None:
        """Take the policy file over as it is now: a person asked for it."""
        self.reload = False
        if self.load is None:
            return
        try:
            site = self.load()
        except RerailError as error:
            self.say(f"the policy file was not read again: {explain(error)}")
            return
        self.site = site
        self._equip()
        self._announced = -math.inf
        self.say(f"the policy file was read again: {self.manner()}")
        with writing(self.engine) as connection:
            digest = site.live.digest if site.live else ""
            audit.note(connection, "rerail", "policy_read_again", "policy", digest=digest)

    def manner(self) -> str:
        """Return how far this daemon may act."""
        return "dry run" if self.site.policy.dry_run else "acting as the policy allows"

    def _announce(self) -> None:
        """Say in the store that this daemon runs and by which policy; tell people when it is held."""
        why = self.executor.held()
        if self._announced == -math.inf and not why:
            with writing(self.engine) as connection:
                site_words.end(connection, site_words.HELD)
        if why != self._said.get("policy", ""):
            self._held(why)
        now = self.steady()
        if now - self._announced < presence.SEEN_EVERY_S and why == self._told_why:
            return
        self._told_why = why
        self._announced = now
        with writing(self.engine) as connection:
            presence.announce(connection, self.name, self.site, self.clock())

    def _held(self, why: str) -> None:
        before = self._said.pop("policy", "")
        if not why:
            self.say(f"steps run by themselves again; they did not because: {before}")
            with writing(self.engine) as connection:
                site_words.end(connection, site_words.HELD)
            return
        self._said["policy"] = why
        text = f"no step runs by itself: {why}"
        self.say(text)
        with writing(self.engine) as connection:
            audit.note(connection, "rerail", "automatic_steps_held", "policy", why=why)
            body = {"kind": "held", "text": text, "urgent": True, "to": "operators"}
            outbox.put(connection, f"held/{self.clock():.0f}", body)
            site_words.put(connection, site_words.HELD, f"No recovery step runs by itself: {why}")

    def _look_at_clock(self) -> None:
        """Notice that the clock was set: what waits for a time that never comes is brought back."""
        offset = self.clock() - self.steady()
        jump, self._offset = offset - self._offset, offset
        if abs(jump) < CLOCK_JUMP_S:
            return
        ahead = "ahead" if jump > 0 else "back"
        self.say(f"this host's clock was set {ahead} by {abs(jump):.0f} s")
        with writing(self.engine) as connection:
            moved = queue.after_clock_jump(connection, self.clock())
            audit.note(
                connection, "rerail", "clock_jump", "clock", seconds=round(jump), moved=moved
            )
            known = control.get(connection, CURSOR)
            if known is not None and float(known) > self.clock():
                control.put(connection, CURSOR, self.clock() - OVERLAP_S)

    def drain(self, limit_s: float) -> None:
        """Work until no event waits any more, or the time is over."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self.round():
                continue
            with reading(self.engine) as connection:
                left = queue.counts(connection)
            if not left.get("waiting") and not left.get("claimed") and not self.triggers.known:
                return
            time.sleep(0.2)

    def tidy(self) -> None:
        """Remove old copies of evidence, once an hour."""
        now = self.clock()
        if self.steady() - self._tidied >= 3600.0:
            self._tidied = self.steady()
            days = self.site.policy.jobs.keep_evidence_days
            prune_evidence(self.site.data / "evidence", days, now)
            prune_files(self.site.data / "finished", days, now)
            prune_files(self.site.data / "pods", days, now)

    def poll(self) -> None:
        """Ask the scheduler what ended badly and what stands still."""
        now = self.steady()
        if self.site.reader is None or now - self._polled < self.poll_s:
            return
        self._polled = now
        self._poll_ended(self.clock())
        self._poll_running(self.clock())

    def _poll_ended(self, now: float) -> None:
        reader = self.site.reader
        if reader is None:
            return
        with writing(self.engine) as connection:
            since = control.get(connection, CURSOR)
        # A first start does not dig up failures from before it. A clock that was set back must not
        # make us deaf until it has caught up.
        start = now - self.poll_s if since is None else float(since)
        found = reader.ended_badly(start if start <= now else now - OVERLAP_S)
        known: list[AttemptRecord] = []
        with writing(self.engine) as connection:
            for one in found:
                event = JobEvent(
                    job=self._ref(one.job, one.attempt),
                    source="poll",
                    state=one.state,
                    time=iso_of(one.end or now),
                    exit_code=one.exit_code,
                    signal=one.signal,
                )
                if self._put(connection, event):
                    self.say(f"job {one.job} attempt {one.attempt}: {one.state}")
                elif one.state == "NODE_FAIL":
                    known.append(one)
            if since is None or now - OVERLAP_S > float(since):
                control.put(connection, CURSOR, now - (0 if since is None else OVERLAP_S))
        for one in known:
            self._revisit(reader, one, one.nodes)

    def _poll_running(self, now: float) -> None:
        """Notice jobs that run and whose step count has not moved for too long."""
        reader = self.site.reader
        if reader is None:
            return
        limit = self.site.policy.jobs.stalled_after_s
        for one in reader.running():
            files = reader.files(one.job)
            logs = [Path(name) for name in {files.stdout, files.stderr} if name]
            step = step_of_live_logs(logs, one.uid)
            attempt = reader.attempts(one.job)[-1].attempt
            key = f"{one.job}/{attempt}"
            measured = self.site.speeds(self._ref(one.job, attempt), files, one.uid)
            if measured is not None:
                self._note_speeds(self._ref(one.job, attempt), measured, now)
            known, since = self._steps.get(key, (None, now))
            if step is None or step != known:
                self._steps[key] = (step, now)
                continue
            if now - since < limit:
                continue
            event = JobEvent(
                job=self._ref(one.job, attempt),
                source="progress",
                state=STALLED,
                time=iso_of(since),
                extra={"last_step": step, "silent_s": round(now - since, 1)},
            )
            with writing(self.engine) as connection:
                if self._put(connection, event):
                    self.say(f"job {one.job}: no progress since step {step}, {now - since:.0f} s")

    def _note_speeds(self, job: JobRef, measured: Measured, now: float) -> None:
        """Notice a running job whose slowest group holds up the others for too long."""
        slow = self.site.policy.slow
        waste = self._waste.setdefault(job.key, Waste())
        if waste.add(measured, slow.least_gain_ratio) < slow.after_lost_s:
            return
        event = JobEvent(
            job=job,
            source="speeds",
            state=SLOW,
            time=iso_of(now),
            extra={
                **measured.speeds.model_dump(mode="json"),
                "step": measured.step,
                "lost_s": round(waste.lost_s, 1),
            },
        )
        with writing(self.engine) as connection:
            if self._put(connection, event):
                self.say(f"job {job.job}: its slowest group has cost {waste.lost_s:.0f} s")

    def work_off(self) -> int:
        """Claim due events and turn each into an incident and a plan; return how many were done."""
        with writing(self.engine) as connection:
            items = queue.claim(
                *(connection, self.name),
                now=self.clock(),
                most=AT_ONCE,
                is_gone=is_gone,
                cluster=self.site.own_cluster,
            )
        done = 0
        for item in items:
            try:
                plan = self.worker.work(item)
            except RerailError as error:
                self._give_back(item, error.message)
                self.say(f"{item.event.key}: {explain(error)}")
                continue
            except Exception as error:  # one odd event must not keep all others from being heard
                why = f"a bug in rerail: {type(error).__name__}: {error}"
                self._give_back(item, why)
                self.say(f"{item.event.key}: {why}; tried again later")
                continue
            done += 1
            if plan is not None:
                steps = ", ".join(f"{one.kind} {one.target}".strip() for one in plan.actions)
                self.say(f"{plan.incident} {item.event.key}: plan {plan.id}: {steps or 'nothing'}")
                for why in plan.refusals:
                    self.say(f"  refused: {why}")
        return done

    def _give_back(self, item: queue.Claimed, why: str) -> None:
        """Put an event back; people are told of one that is given up."""
        with writing(self.engine) as connection:
            if queue.give_back(connection, item, why, now=self.clock()):
                text = f"the failure of {item.event.key} could not be worked off: {why}"
                body = {"kind": "event_failed", "job": item.event.key, "text": text, "urgent": True}
                outbox.put(connection, f"event/{item.id}", body)
                told = f"The failure of job {item.event.key} could not be worked off: {why}"
                site_words.put(
                    connection, site_words.event_kind(item.id), told, job=item.event.job.job
                )

    def advance(self) -> int:
        """Move plans forward; return how many changes of state were made."""
        return self._whole("recovery", self.executor.advance)
