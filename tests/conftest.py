"""What all tests share: cache and data folders of their own, and a job folder made from texts.

The cache of compiled rules lies in pytest's own cache folder, for the tests and for every process
they start, so that no test reads or writes the user's own, and only the first run compiles them.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from rerail.domain.diagnosis import Diagnosis
from rerail.domain.plan import ActionKind, PlannedAction, Risk

for _name in [name for name in os.environ if name.startswith("RERAIL_")]:
    if _name != "RERAIL_UPDATE_SNAPSHOTS":
        del os.environ[_name]
# No time limit for a single example: the first one may compile the rules, and machines are shared.
settings.register_profile("rerail", deadline=None)
settings.load_profile("rerail")

# A job in the background of a shell ignores Ctrl-C, and so would what the tests start and interrupt.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["RERAIL_CACHE_DIR"] = str(Path(__file__).parents[1] / ".pytest_cache" / "rerail")
# Each test process has a store of its own; nothing is written to the user's.
os.environ["RERAIL_DATA_DIR"] = tempfile.mkdtemp(prefix="rerail-test-data-")
# Loading Chroma and word vectors takes a second in every process; their own tests ask for them.
os.environ["RERAIL_EMBEDDING_MODEL"] = "none"
atexit.register(shutil.rmtree, os.environ["RERAIL_DATA_DIR"], ignore_errors=True)


_schemas = itertools.count()

Texts = str | bytes | dict[str, str | bytes]


@pytest.fixture
def job(tmp_path: Path) -> Callable[[Texts], Path]:
    """Write the files of a job, given as name to content, into a new folder and return it."""

    def write(texts: Texts) -> Path:
        folder = tmp_path / f"job{len(list(tmp_path.glob('job*')))}"
        folder.mkdir()
        files = texts if isinstance(texts, dict) else {"train.log": texts}
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    return write


@pytest.fixture
def diagnose(job: Callable[[Texts], Path]) -> Callable[[Texts], Diagnosis]:
    """Write the files of a job and return its diagnosis."""
    from rerail.assistant.pipeline import diagnose_paths

    def run(texts: Texts) -> Diagnosis:
        return diagnose_paths([job(texts)]).diagnosis

    return run


@pytest.fixture
def diagnose_files(diagnose: Callable[[Texts], Diagnosis]) -> Callable[..., Diagnosis]:
    """Diagnose files given as keyword arguments; `__` in a name stands for a dot."""

    def run(**files: str) -> Diagnosis:
        return diagnose({name.replace("__", "."): text for name, text in files.items()})

    return run


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Start a PostgreSQL of this test process; where there is none the test is skipped."""
    pytest.importorskip("psycopg")
    from rerail.errors import UsageError
    from rerail.evals.cluster.postgres import running_postgres

    with ExitStack() as stack:
        try:
            url = stack.enter_context(running_postgres())
        except UsageError as error:
            pytest.skip(error.message)
        yield url


@pytest.fixture
def action() -> Callable[..., PlannedAction]:
    """Make a planned step: kind, target and parameters may be chosen."""

    def make(kind: ActionKind, target: str = "", **parameters: object) -> PlannedAction:
        return PlannedAction(
            step=1,
            kind=kind,
            target=target,
            parameters=parameters,
            risk=Risk.LOW,
            reversible=True,
            because="b",
            needs_approval=False,
        )

    return make


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty store: nothing for SQLite, a schema of its own in PostgreSQL."""
    if request.param == "sqlite":
        return ""
    from sqlalchemy import text

    from rerail.knowledge_base.store.engine import open_store
    from rerail.settings import Settings

    base = request.getfixturevalue("postgres_url")
    schema = f"case_{next(_schemas)}"
    engine = open_store(Settings(store_url=base, data_dir=tmp_path), migrate=False)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    engine.dispose()
    return f"{base}&options=-csearch_path%3D{schema}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that wait longest, on a real Slurm: at the end one worker would run them alone."""
    items.sort(key=lambda item: item.get_closest_marker("slurm") is None)
