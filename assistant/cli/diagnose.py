"""`rerail diagnose`: logs in, first fault out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rerail.assistant.verdict_out import exit_code, show
from rerail.domain.diagnosis import Diagnosis, Outcome
from rerail.errors import EvidenceError, UsageError
from rerail.lazy_patterns import lazy

if TYPE_CHECKING:
    from rerail.assistant.agent.explain import ModelClaim
    from rerail.assistant.pipeline import Outcome as RunOutcome
    from rerail.assistant.record import Recorded
    from rerail.domain.series import StepSeries
    from rerail.tools.forecast.compare import Expected

_MOST_TOLD = 3
_MAY_NAME_A_JOB = lazy(r"[0-9]+(?:[_+][0-9]+)?$|[a-z][a-z0-9+.-]*://")


def diagnose_command(
    paths: list[str],
    *,
    json_output: bool,
    quiet: bool,
    verbose: bool,
    follow: bool,
    rank: int | None,
    since: str | None,
    digest: Path | None = None,
    sarif: Path | None = None,
    job: str | None = None,
    attempt: int | None = None,
    store: bool = True,
    model: bool = True,
    expected: Path | None = None,
    baselines: Sequence[Path] = (),
    locate_budget: float = 20.0,
) -> int:
    """Diagnose the paths and print the verdict; return the exit code.

    `expected` is a forecast (JSON or spec) that the step times are held against; `baselines` are good runs of
    the same job that loss, times and learning rate are held against. A job that is named
    in the place of a path is looked for for `locate_budget` seconds.
    """
    from rerail.assistant.cli.quick_start import no_thread_pool

    with ExitStack() as held:
        held.enter_context(no_thread_pool())
        gathered = None
        named = any(_may_name_a_job(one) for one in paths)
        if follow:
            _refuse_beside_follow(expected)
            return _follow(
                *(paths, named, locate_budget, attempt, _good_runs(baselines)),
                json_output=json_output,
                quiet=quiet,
            )
        if named:
            from rerail.assistant.cli.located import located

            paths, gathered = located(paths, locate_budget, attempt)
            held.enter_context(gathered)
        from rerail.assistant.narrow import Narrow
        from rerail.assistant.pipeline import diagnose_paths
        from rerail.assistant.record import Recorded, record_outcome

        narrow = Narrow.parse(rank=rank, since=since)
        good = _good_runs(baselines)
        from rerail.log_parsers.compiled_cache import told

        with (
            told(_wait, most=1 if quiet else None),
            _Progress(enabled=not (quiet or json_output)) as progress,
        ):
            outcome = diagnose_paths(
                paths,
                on_progress=progress,
                narrow=narrow,
                mine=digest is not None,
                expected=None if expected is None else _expected(expected),
                located=None if gathered is None else gathered.evidence,
                good_runs=good,
            )
        if digest is not None:
            _write_digest(outcome, digest)
        recorded = Recorded(outcome)
        if store and rank is None and since is None:
            if gathered is not None:
                job = job or gathered.job or None
                attempt = gathered.attempt if attempt is None else attempt
                paths = [*paths, *sorted(gathered.paths)]
            recorded = record_outcome(outcome, paths, job=job, attempt=attempt)
            for banner in recorded.banners:
                print(f"rerail: {banner}", file=sys.stderr)
        diagnosis = recorded.outcome.diagnosis
        if sarif is not None:
            _write_sarif(diagnosis, sarif)
        if not json_output:
            _tell_unread(outcome, quiet=quiet)
            show(diagnosis, json_output=False, quiet=quiet, verbose=verbose)
        if model and not quiet:
            diagnosis = _explain(recorded, json_output=json_output)
        if json_output:
            show(diagnosis, json_output=True, quiet=quiet, verbose=verbose)
        if sys.stderr.isatty():
            from rerail.assistant.cli.compile_ahead import in_background

            in_background()
        return (
            EvidenceError.exit_code if _nothing_was_read(recorded.outcome) else exit_code(diagnosis)
        )


def _refuse_beside_follow(expected: Path | None) -> None:
    if expected is not None:
        raise UsageError(
            "--expected and --follow do not go together", subject="--expected",
            hint="rerail diagnose --expected FILE logs/",
        )  # fmt: skip


def _follow(
    paths: list[str],
    named: bool,
    seconds: float,
    attempt: int | None,
    good: list[Sequence[StepSeries]],
    *,
    json_output: bool,
    quiet: bool,
) -> int:
    from rerail.assistant.follow import follow_command

    follow = partial(follow_command, json_output=json_output, quiet=quiet, good_runs=good)
    if not named:
        return follow(paths)
    from rerail.assistant.cli.located import split
    from rerail.assistant.locate.live import LiveJob

    paths, name = split(paths)
    if name is None:
        return follow(paths)
    with LiveJob(name, seconds, attempt) as job:
        return follow(paths, job=job)


def _good_runs(paths: Sequence[Path]) -> list[Sequence[StepSeries]]:
    if not paths:
        return []
    from rerail.assistant.step_logs import read_good_runs

    return read_good_runs(paths)


def _may_name_a_job(argument: str) -> bool:
    """Tell by the look of it alone whether an argument may be a job; files load nothing for that."""
    return _MAY_NAME_A_JOB.match(argument) is not None


def _expected(path: Path) -> Expected:
    from rerail.tools.forecast.compare import read_expected

    return read_expected(path)


def _write_sarif(diagnosis: Diagnosis, path: Path) -> None:
    import json

    from rerail.assistant.cli.plot_file import write_output
    from rerail.assistant.sarif import to_sarif

    write_output(path, json.dumps(to_sarif(diagnosis), indent=1).encode() + b"\n", option="--sarif")


def _nothing_was_read(outcome: RunOutcome) -> bool:
    """Tell whether all that was given is what nobody can read: an archive, a file that is no text."""
    collection = outcome.collection
    return (
        outcome.diagnosis.outcome is Outcome.INCONCLUSIVE
        and bool(collection.problems)
        and not any(view.numbers for view in collection.views)
    )


def _tell_unread(outcome: RunOutcome, *, quiet: bool) -> None:
    """Say on standard error what could not be read, where one line about a good end would hide it."""
    if not quiet or outcome.diagnosis.outcome is Outcome.FAILURE:
        return
    problems = outcome.collection.problems
    for one in problems[:_MOST_TOLD]:
        print(f"rerail: {one.subject}: {one.why}", file=sys.stderr)
    if len(problems) > _MOST_TOLD:
        print(f"rerail: and {len(problems) - _MOST_TOLD} more; --json lists them", file=sys.stderr)


def _wait(why: str) -> None:
    print(f"rerail: {why}", file=sys.stderr)


def _explain(recorded: Recorded, *, json_output: bool) -> Diagnosis:
    """Ask the model where one is configured; the verdict is on the screen already."""
    from rerail.settings import load_settings

    diagnosis = recorded.outcome.diagnosis
    settings = load_settings()
    if bool(settings.model_url) != bool(settings.model):
        lacks = "RERAIL_MODEL" if settings.model_url else "RERAIL_MODEL_URL"
        print(f"rerail: no model is asked: {lacks} is not set", file=sys.stderr)
    if not (settings.model_url and settings.model):
        return diagnosis
    from rerail.assistant.model_extra import not_installed

    if absent := not_installed():
        print(
            f"rerail: no model is asked: {absent} is not installed (pip install 'rerail[agent]');"
            " the verdict of the rules stands",
            file=sys.stderr,
        )
        return diagnosis
    from rerail.assistant.explained import explain_recorded, wanted

    if not wanted(diagnosis, settings):
        return diagnosis
    from rerail.assistant.agent.budget import budget_from
    from rerail.assistant.cli.working import Working
    from rerail.assistant.render_model import ClaimsAsTheyCome, render_explanation

    sys.stdout.flush()
    said = [f"asking {settings.model}"]
    budget = budget_from(settings)

    def doing() -> str:
        cost = f", {budget.cost:.4f}" if budget.cost else ""
        tokens = budget.tokens + budget.arriving
        at = f"{said[-1][:40]}  requests: {budget.calls}, tokens: {tokens}{cost}"
        return f"{at}  Ctrl-C stops it, the verdict stands"

    def on_event(text: str) -> None:
        said.append(text)
        working.above(lambda: print(text, file=sys.stderr))

    from rich.console import Console

    width = None if sys.stdout.isatty() else 110
    console = Console(width=width, soft_wrap=True)
    coming = ClaimsAsTheyCome(settings.model, console)

    def on_claim(claim: ModelClaim) -> None:
        working.above(lambda: coming.show(claim))

    live = sys.stderr.isatty() and not json_output
    try:
        with Working(doing, enabled=not json_output) as working:
            diagnosis, explanation = explain_recorded(
                recorded,
                on_event=on_event if live else None,
                on_claim=on_claim if live and sys.stdout.isatty() else None,
                budget=budget,
            )
    except KeyboardInterrupt:
        coming.break_off()
        print("rerail: the explanation was stopped; the verdict stands", file=sys.stderr)
        return diagnosis
    if explanation.banner:
        coming.break_off()
        print(f"rerail: {explanation.banner}; the verdict of the rules stands", file=sys.stderr)
    elif not json_output:
        render_explanation(explanation, console, shown=coming.shown)
    return diagnosis


def _write_digest(outcome: RunOutcome, path: Path) -> None:
    from rerail.assistant.cli.plot_file import write_output
    from rerail.assistant.digest import job_digest

    write_output(path, job_digest(outcome).text.encode(), option="--digest")


class _Progress:
    """One line on standard error, only on a terminal and only when reading takes a while."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled and sys.stderr.isatty()
        self._started = time.monotonic()
        self._shown = 0.0

    def __enter__(self) -> Callable[[int, int], None]:
        return self._update

    def _update(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._enabled or now - self._started < 0.5 or now - self._shown < 0.1:
            return
        self._shown = now
        share = f"{100 * done // total:3d}%" if total else ""
        rate = done / (now - self._started) / 1e6
        sys.stderr.write(f"\r\x1b[Kreading logs {share}  {done / 1e6:,.0f} MB  {rate:,.0f} MB/s")
        sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
