"""rerail in a notebook: a diagnosis that shows itself, and its tables as pandas frames.

`import rerail; d = rerail.diagnose("logs/"); d.ranks; d.steps; rerail.incidents(since="7d")`. Nothing
is kept in the store.
"""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.assistant.fleet import fleet_since
from rerail.assistant.presentation.fleet import FleetView
from rerail.assistant.presentation.fleet_frames import fleet_frames
from rerail.assistant.presentation.fleet_words import fleet_sentences
from rerail.assistant.presentation.verdict import VerdictView, verdict_view
from rerail.assistant.snapshot import take_snapshot
from rerail.assistant.stored import load_incident
from rerail.domain.diagnosis import Diagnosis
from rerail.domain.incident import Snapshot
from rerail.errors import ConfigError, UsageError
from rerail.knowledge_base.store.opened import opened_store

if TYPE_CHECKING:
    from pandas import DataFrame


class Diagnosed:
    """A diagnosis with its tables.

    `verdict` is the record that `rerail diagnose --json` prints; `headline` its one sentence.
    """

    def __init__(self, verdict: Diagnosis, snapshot: Snapshot) -> None:
        self.verdict = verdict
        self._snapshot = snapshot

    @property
    def headline(self) -> str:
        """Who failed, at what, what it did to the others, since when."""
        return self.verdict.headline or self.verdict.summary

    @property
    def ranks(self) -> DataFrame:
        """One row for each rank: rank, node, gpu, last_step, last_step_at, failed_at, part."""
        return _frame([one.model_dump() for one in self._snapshot.ranks])

    @property
    def steps(self) -> DataFrame:
        """The kept series in long form: series, rank, step, value; seconds for step times."""
        rows = [
            {"series": one.name, "rank": one.rank, "step": step, "value": value}
            for one in self._snapshot.series
            for step, value in zip(one.step, one.value, strict=True)
        ]
        return _frame(rows, columns=["series", "rank", "step", "value"])

    @property
    def evidence(self) -> DataFrame:
        """One row for each cited line."""
        return _frame([one.model_dump() for one in self.verdict.evidence])

    def _repr_html_(self) -> str:
        view = verdict_view(self.verdict)
        rows = "".join(
            f"<tr><td>{escape(e.id)}</td><td>{escape(e.word)}</td><td>{escape(e.at)}</td>"
            f"<td><code>{escape(e.text[:300])}</code></td></tr>"
            for e in view.evidence[:8]
        )
        return (
            f"<p><strong>{escape(view.headline)}.</strong> {escape(view.status)}</p>"
            f"<p>{escape(view.detail)}</p><table>{rows}</table><p>Do: {escape(view.do)}</p>"
        )

    def __repr__(self) -> str:
        view: VerdictView = verdict_view(self.verdict)
        return f"{view.headline}. {view.status}"


def diagnose(*paths: str | PathLike[str]) -> Diagnosed:
    """Return the diagnosis of log files or folders.

    Raises:
        EvidenceError: Nothing can be read there.
    """
    from rerail.assistant.pipeline import diagnose_paths

    outcome = diagnose_paths([str(path) for path in paths])
    return Diagnosed(outcome.diagnosis, take_snapshot(outcome))


def incident(name: str = "last") -> Diagnosed:
    """Return an incident of the store.

    Raises:
        UsageError: None has this id.
    """
    file = load_incident(name)
    return Diagnosed(file.diagnosis, file.incident.snapshot)


def incidents(since: str | None = None, limit: int = 1000) -> DataFrame:
    """Return the incidents of the store, the latest first, one row each.

    Raises:
        UsageError: `since` is neither a span such as 7d nor a date.
    """
    from rerail.assistant.since import since_iso
    from rerail.knowledge_base.store.engine import reading
    from rerail.knowledge_base.store.incidents import list_incidents

    with opened_store() as engine, reading(engine) as connection:
        rows = list_incidents(connection, since=since_iso(since) if since else None, limit=limit)
    return _frame([asdict(row) for row in rows])


class Reported:
    """The fleet since a time.

    `view` is the record that `rerail report --json` prints; `tables` names what `table` gives.
    """

    def __init__(self, view: FleetView) -> None:
        self.view = view
        self._frames = fleet_frames(view)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables, `categories` and `nodes` among them; `sizes` and `chance` with a record of jobs."""
        return tuple(self._frames)

    def table(self, name: str) -> DataFrame:
        """Return one table as a frame.

        Raises:
            UsageError: There is no such table.
        """
        if name not in self._frames:
            raise UsageError(
                f"no table is called {name!r}", subject=name, hint=", ".join(self._frames)
            )
        return _frame(self._frames[name])

    def _repr_html_(self) -> str:
        told = "".join(f"<li>{escape(one)}</li>" for one in fleet_sentences(self.view))
        return f"<ul>{told}</ul>"

    def __repr__(self) -> str:
        return "\n".join(fleet_sentences(self.view))


def report(since: str = "30d", jobs: str | PathLike[str] | None = None) -> Reported:
    """Return what failed on the site since a time; `jobs` is its record of jobs (`sacct -P`).

    Raises:
        UsageError: `since` is neither a span such as 7d nor a date.
        EvidenceError: The record of jobs cannot be read.
    """
    return Reported(fleet_since(since, None if jobs is None else Path(jobs)))


def _frame(rows: list[dict[str, Any]], columns: list[str] | None = None) -> DataFrame:
    try:
        import pandas
    except ModuleNotFoundError:
        raise ConfigError(
            "tables need pandas", subject="pandas", hint="pip install pandas"
        ) from None
    return pandas.DataFrame(rows, columns=columns)
