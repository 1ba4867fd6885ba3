"""The audit log is checked where it lies: nothing is written there, and nothing passed over."""

import os
import tempfile
from pathlib import Path

import pytest

from rerail.assistant.cli.audit import verify_command
from rerail.errors import StoreError
from rerail.knowledge_base.store.engine import open_store, writing
from rerail.recovery.store import audit
from rerail.settings import Settings


@pytest.fixture
def sealed():
    """A store in a folder where nobody may write; root looks at it as nobody."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = open_store(Settings(data_dir=folder))
        with writing(made) as connection:
            for number in range(3):
                audit.note(connection, "ann", "did", f"P-{number}")
        log = folder / "store.sqlite-wal"
        newest = log.read_bytes()
        made.dispose()

        def seal(*, with_log=False):
            if with_log:
                log.write_bytes(newest)
            for path in folder.iterdir():
                path.chmod(0o444)
            folder.chmod(0o555)
            if os.getuid() == 0:
                os.seteuid(65534)
            return folder

        yield seal
        if os.getuid() == 0:
            os.seteuid(0)
        folder.chmod(0o755)


def test_the_audit_log_is_verified_where_it_lies_on_a_read_only_medium(sealed, capsys):
    folder = sealed()
    before = sorted(folder.iterdir())
    assert verify_command(folder / "store.sqlite") == 0
    assert "intact: 3 entries" in capsys.readouterr().out
    assert sorted(folder.iterdir()) == before


def test_entries_that_cannot_be_read_there_are_not_passed_over(sealed):
    folder = sealed(with_log=True)
    with pytest.raises(StoreError, match="lie in store"):
        verify_command(folder / "store.sqlite")


def test_looking_at_a_store_that_is_not_there_makes_none(tmp_path):
    with pytest.raises(StoreError, match="there is no store"):
        verify_command(tmp_path / "store.sqlite")
    assert list(tmp_path.iterdir()) == []
