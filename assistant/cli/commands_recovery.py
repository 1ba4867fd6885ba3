"""The commands of recovery as typer sees them; their bodies are imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rerail.assistant.cli.registered import passing_through

audit = typer.Typer(help="The audit log of everything that recovery did.", no_args_is_help=True)
policy = typer.Typer(help="The policy of this site.", no_args_is_help=True)
breaker = typer.Typer(help="The breaker that stops all recovery.", no_args_is_help=True)


def plan(
    name: Annotated[
        str,
        typer.Argument(help="An incident, a plan, 'last', or a job: 4711, k8s://namespace/job."),
    ] = "last",
    again: Annotated[
        bool, typer.Option("--again", help="Make a new one from what is true now.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show a recovery plan: what would be done, exactly, why, and how to undo it."""
    from rerail.assistant.cli.plan import plan_command

    raise typer.Exit(plan_command(name, again=again, json_output=json_output))


def plans(
    limit: Annotated[int, typer.Option(min=1, help="Most plans.")] = 20,
    open_only: Annotated[
        bool, typer.Option("--open", help="Only those with a step that waits or is under way.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List recovery plans, the newest first: job, steps and how each stands."""
    from rerail.assistant.cli.plans import plans_command

    raise typer.Exit(plans_command(limit, open_only=open_only, json_output=json_output))


def approve(
    name: Annotated[str, typer.Argument(help="A plan.")],
    step: Annotated[int | None, typer.Option(help="Only this step; else each open one.")] = None,
    target: Annotated[
        str | None, typer.Option(help="The step's target, instead of typing it when asked.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Your name; the login name by default.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and ask everything anew, do nothing.")
    ] = False,
) -> None:
    """Approve steps of a plan and carry them out. Enter alone means no."""
    from rerail.assistant.cli.plan import approve_command

    raise typer.Exit(approve_command(name, step=step, target=target, by=by, dry_run=dry_run))


def reject(
    name: Annotated[str, typer.Argument(help="A plan.")],
    step: Annotated[int | None, typer.Option(help="Only this step; else each open one.")] = None,
    why: Annotated[str, typer.Option(help="The reason, for the record.")] = "",
    by: Annotated[str | None, typer.Option(help="Your name; the login name by default.")] = None,
) -> None:
    """Refuse steps of a plan."""
    from rerail.assistant.cli.plan import reject_command

    raise typer.Exit(reject_command(name, step=step, why=why, by=by))


def undo(
    name: Annotated[str, typer.Argument(help="A plan.")],
    step: Annotated[int, typer.Option(help="The step to take back.")],
) -> None:
    """Plan to take back a step that was carried out: drain by undrain, requeue by cancel."""
    from rerail.assistant.cli.plan import undo_command

    raise typer.Exit(undo_command(name, step))


def hook(
    event: Annotated[
        Path | None,
        typer.Argument(help="A JobEvent as JSON, '-' for standard input; strigger's argument."),
    ] = None,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Read Slurm's environment (EpilogSlurmctld, jobcomp).")
    ] = False,
    strigger: Annotated[
        str | None,
        typer.Option(help="The trigger that fired: down, drained, fail, fini or time."),
    ] = None,
    process: Annotated[
        bool, typer.Option("--process", help="Work it off in the background, without a daemon.")
    ] = False,
    limit_s: Annotated[float, typer.Option(help="Time limit of --process.")] = 60.0,
) -> None:
    """Take a job event from a scheduler. Returns at once and always with exit code 0."""
    from rerail.assistant.watch.hook import hook_command

    # `rerail.assistant.entry` answers before this is loaded; here it stands for --help.
    raise typer.Exit(
        hook_command(event, slurm=slurm, strigger=strigger, process=process, limit_s=limit_s)
    )


def watch(
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between rounds.")] = 2.0,
    poll: Annotated[
        float, typer.Option(min=0.05, help="Seconds between questions to the scheduler.")
    ] = 15.0,
    once: Annotated[bool, typer.Option("--once", help="Work off what waits, then end.")] = False,
    limit_s: Annotated[float, typer.Option(help="Time limit of --once.")] = 60.0,
    listen: Annotated[
        str | None, typer.Option(help="Take webhooks at HOST:PORT (/events, /alertmanager).")
    ] = None,
) -> None:
    """Watch the cluster: diagnose what fails, plan, and do what the policy allows."""
    from rerail.assistant.cli.watch import watch_command

    raise typer.Exit(watch_command(interval, poll, once=once, limit_s=limit_s, listen=listen))


@passing_through
def run(
    command: Annotated[list[str], typer.Argument(help="-- torchrun ... or any launcher.")],
    log_dir: Annotated[
        Path | None, typer.Option(help="Folder for logs and error files; a new one by default.")
    ] = None,
    restarts: Annotated[
        int, typer.Option(help="Start it again at most so often, where the verdict allows.")
    ] = 0,
) -> None:
    """Run a launcher, watch it, and diagnose it when it fails. It is not replaced."""
    from rerail.assistant.cli.run import run_command

    raise typer.Exit(run_command(command, log_dir, restarts))


def healthcheck(
    json_output: Annotated[bool, typer.Option("--json")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats of each test of a pair.")] = 3,
    message_mb: Annotated[
        float, typer.Option(min=0.001, help="MiB that each side of a pair sends.")
    ] = 8.0,
    pair_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which a pair has failed.")
    ] = 20.0,
    join_s: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for nodes to join.")
    ] = 120.0,
    matrix: Annotated[
        int | None, typer.Option(min=16, help="Side of the matrices; by device otherwise.")
    ] = None,
) -> None:
    """Test devices and, under srun or torchrun, the collectives between every pair of nodes."""
    from rerail.assistant.cli.healthcheck import healthcheck_command
    from rerail.tools.health.agents import Limits

    limits = Limits(int(message_mb * (1 << 20)), repeats, join_s, pair_s, matrix)
    raise typer.Exit(healthcheck_command(limits, json_output=json_output))


def doctor(json_output: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Say what rerail can do here: store, scheduler, identities, policy, breaker."""
    from rerail.assistant.cli.doctor import doctor_command

    raise typer.Exit(doctor_command(json_output))


def notify(
    test: Annotated[
        bool, typer.Option("--test", help="Send a test message, and end it again where one can.")
    ] = False,
    service: Annotated[
        str, typer.Option(help="Only this one: slack, pagerduty, alertmanager, apprise.")
    ] = "",
) -> None:
    """Say by which services people are told of incidents and what waits; --test tries them now."""
    from rerail.assistant.cli.notify import notify_command

    raise typer.Exit(notify_command(test=test, service=service))


@audit.command("verify")
def audit_verify(
    file: Annotated[
        Path | None, typer.Option(help="A store file to check in place of this site's, a backup.")
    ] = None,
) -> None:
    """Check the chain of the audit log where it lies; exit code 1 where it is broken."""
    from rerail.assistant.cli.audit import verify_command

    raise typer.Exit(verify_command(file))


@audit.command("show")
def audit_show(
    subject: Annotated[str, typer.Argument(help="A plan or job; empty for all.")] = "",
    limit: Annotated[int, typer.Option(help="Most entries.")] = 100,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print entries of the audit log, the latest last."""
    from rerail.assistant.cli.audit import show_command

    raise typer.Exit(show_command(subject, limit, json_output))


@policy.command("readiness")
def policy_readiness(json_output: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Count what people decided on each rule's proposals: is it ready to act alone?"""
    from rerail.assistant.cli.policy import readiness_command

    raise typer.Exit(readiness_command(json_output))


@breaker.command("status")
def breaker_status() -> None:
    """Say whether the breaker is open, and why; exit code 1 while it is."""
    from rerail.assistant.cli.audit import breaker_command

    raise typer.Exit(breaker_command())


@breaker.command("open")
def breaker_open(
    why: Annotated[str, typer.Option(help="Why everything has to stop, for the others.")],
    by: Annotated[str | None, typer.Option(help="Your name; the login name by default.")] = None,
) -> None:
    """Stop all recovery now: no running daemon has another side effect until a person closes it."""
    from rerail.assistant.cli.audit import open_command

    raise typer.Exit(open_command(why, by))


@breaker.command("close")
def breaker_close(
    reason: Annotated[str, typer.Argument(help="What was found and done.")],
    by: Annotated[str | None, typer.Option(help="Your name; the login name by default.")] = None,
) -> None:
    """Close the breaker; nothing but a person ever does."""
    from rerail.assistant.cli.audit import close_command

    raise typer.Exit(close_command(reason, by))


COMMANDS = (plan, plans, approve, reject, undo, hook, watch, run, healthcheck, doctor, notify)
GROUPS = {"audit": audit, "breaker": breaker, "policy": policy}
