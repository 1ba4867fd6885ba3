"""`rerail eval agent`: one table, the rules alone in its first row."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from rerail.assistant.agent.prompt import prompt_id
from rerail.errors import UsageError
from rerail.evals.agent.cases import AgentCase, faultlab_cases, text_cases
from rerail.evals.agent.false_claims import plant
from rerail.evals.agent.recording import Forwarder, Tape, load_tape
from rerail.evals.agent.run import Row, model_row, rules_row
from rerail.evals.fake_model.server import FakeModelServer
from rerail.settings import Settings, load_settings


def agent_command(
    *,
    url: str,
    name: str,
    cases: Path | None,
    recorded: Path | None,
    only: list[str],
    most: int | None,
    iterations: int,
    blind: bool,
    record: Path | None,
    replay: Path | None,
    json_output: bool,
    turns: int = 8,
) -> int:
    """Score an endpoint, or a recorded run; return 0 when it could be scored."""
    chosen: list[AgentCase] = []
    if recorded is not None:
        chosen += list(faultlab_cases(recorded, only=tuple(only)))
    if cases is not None:
        chosen += list(text_cases(cases, most=most))
    if not chosen:
        raise UsageError(
            "no case was chosen", hint="--recorded tests/data/faultlab, or --cases FILE"
        )
    settings = load_settings()
    with ExitStack() as stack:
        if replay is not None:
            tape = load_tape(replay)
            _check(tape)
            iterations = int(tape.head["iterations"])
            blind = bool(tape.head["blind"])
            name = str(tape.head["model"])
            known = {key[0] for key in tape.answers}
            chosen = [case for case in chosen if case.id in known]
            server = stack.enter_context(FakeModelServer(tape.play))
        elif url:
            tape = Tape(_head(name, iterations, blind))
            key = settings.model_key.get_secret_value()
            forwarder = Forwarder(tape, url, key, seconds=settings.model_max_seconds)
            server = stack.enter_context(FakeModelServer(forwarder.forward))
        else:
            raise UsageError(
                "no model was named", hint="--model http://host:8000/v1, or --replay FILE"
            )
        asked = _settings(settings, server.url, name, turns)
        rows = [rules_row(chosen)]
        false, true = plant(chosen)
        rows[0].planted = {kind: false.row(kind) for kind in sorted(false.asked)}
        rows[0].true_claims = {kind: true.row(kind) for kind in sorted(true.asked)}
        label = f"{name}, blind" if blind else name
        rows.append(
            model_row(label, chosen, asked, iterations=iterations, blind=blind, before=tape.seek)
        )
    if record is not None:
        tape.save(record)
    _print(rows, json_output)
    return 0


def _settings(settings: Settings, url: str, name: str, turns: int) -> Settings:
    """Return the settings of a run: no sample may take more than `turns` requests on average."""
    calls = min(settings.model_max_calls, turns * max(1, settings.model_samples))
    return settings.model_copy(update={"model_url": url, "model": name, "model_max_calls": calls})


def _head(name: str, iterations: int, blind: bool) -> dict[str, object]:
    return {
        "schema_version": 1,
        "model": name,
        "iterations": iterations,
        "blind": blind,
        "prompt_id": prompt_id(),
        "fake": name.startswith("fake"),
    }


def _check(tape: Tape) -> None:
    if tape.head.get("prompt_id") != prompt_id():
        print(
            f"note: recorded under prompt {tape.head.get('prompt_id')}, now it is {prompt_id()}; "
            "handles may mean other lines",
            file=sys.stderr,
        )


def _print(rows: list[Row], json_output: bool) -> None:
    if json_output:
        print(json.dumps([_as_dict(row) for row in rows], indent=2))
        return
    table = Table(title="agent: answers that an expert accepts", box=None)
    for column in (
        "", "type", "ITBench", "root line", "claims checked", "abstained", "failed", "calls", "tokens", "seconds",
        "cost", "same answer", "prompt bytes (log)",
    ):  # fmt: skip
        table.add_column(column, justify="left" if not column else "right")
    for row in rows:
        table.add_row(
            row.name,
            _of(row.type_right, row.cases),
            f"{row.itbench / row.cases:.3f}" if row.cases else "-",
            _of(row.line_right, row.lines_asked),
            _of(row.claims_held, row.claims),
            str(row.abstained),
            str(row.failed),
            str(row.calls),
            str(row.tokens),
            f"{row.seconds:.1f}",
            f"{row.cost:.4f}",
            _of(row.same, row.compared),
            f"{median(row.prompt_bytes):.0f} ({max(row.prompt_log_bytes)} most)"
            if row.prompt_bytes
            else "-",
        )
    out = Console(width=None if sys.stdout.isatty() else 170)
    out.print(table)
    _print_planted(rows[0], out)


def _print_planted(row: Row, out: Console) -> None:
    """Print what became of claims whose truth is known by construction."""
    for title, kinds, passing in (
        ("planted false claims: shown as checked", row.planted, "passed"),
        ("true claims of the same cases: shown as checked", row.true_claims, "kept"),
    ):
        table = Table("kind", "claims", passing, title=title, box=None)
        for kind, (asked, passed) in kinds.items():
            table.add_row(kind, str(asked), str(passed))
        asked = sum(asked for asked, _ in kinds.values())
        passed = sum(passed for _, passed in kinds.values())
        table.add_row("all", str(asked), str(passed))
        out.print(table)


def _of(right: int, asked: int) -> str:
    return f"{right}/{asked}" if asked else "-"


def _as_dict(row: Row) -> dict[str, object]:
    return {name: getattr(row, name) for name in Row.__dataclass_fields__}
