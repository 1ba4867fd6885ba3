"""The benchmark of dark terminals measures real ones; no figure is judged here."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from rerail.evals.bench import alive


@pytest.mark.slow
def test_every_row_is_measured(tmp_path):
    pytest.importorskip("prompt_toolkit")
    (tmp_path / "home").mkdir()
    bars = alive.measure(SimpleNamespace(folder=tmp_path), runs=0)
    assert len(bars) == 7 and all(bar.measured is not None for bar in bars), bars


def test_the_end_of_a_command_looks_through_nothing():
    code = (
        "import atexit, gc; atexit.register(lambda: print('frozen', gc.get_freeze_count() > 0))\n"
        "from rerail.assistant.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    )
    assert "frozen True" in done.stdout
