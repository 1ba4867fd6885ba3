"""What all tests share: cache and data folders of their own, and a job folder made from texts.

The cache of compiled rules lies in pytest's own cache folder, for the tests and for every process
they start, so that no test reads or writes the user's own, and only the first run compiles them.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
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
    """Start a PostgreSQL of this test process, on a socket in a folder of its own.

    The binaries are those of Debian's package; elsewhere the test is skipped. PostgreSQL refuses
    to run as root, so root starts it as the user that the package made.
    """
    pytest.importorskip("psycopg")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("PostgreSQL is not installed: no /usr/lib/postgresql/*/bin/initdb")
    folder = Path(tempfile.mkdtemp(prefix="rerail-pg-"))
    become: list[str] = []
    if os.geteuid() == 0:
        try:
            shutil.chown(folder, "postgres", "postgres")
        except LookupError:
            shutil.rmtree(folder)
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        become = ["runuser", "-u", "postgres", "--"]
    tools = found[-1].parent

    def run(*command: str) -> None:
        done = subprocess.run(
            [*become, *command], cwd=folder, stdin=subprocess.DEVNULL, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    data = str(folder / "data")
    run(str(tools / "initdb"), "-D", data, "-U", "rerail", "-A", "trust", "--no-sync")
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    run(str(tools / "pg_ctl"), "-D", data, "-w", "-o", options, "-l", f"{folder}/log", "start")
    try:
        yield f"postgresql://rerail@/postgres?host={folder}"
    finally:
        run(str(tools / "pg_ctl"), "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


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
