"""The lines for the Hugging Face Trainer and Lightning run as the page shows them."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rerail.tools.profiles.summary import read_summary

pytestmark = [pytest.mark.nightly, pytest.mark.torch]
PAGE = Path(__file__).parents[3] / "docs/localize.md"


@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_the_lines_of_the_page_leave_a_summary(tmp_path: Path, library: str) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed (rerail[callbacks])")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (lines,) = [one for one in blocks if f"import {library}" in one or f"from {library}" in one]
    of_rerail = [line for line in lines.splitlines() if "_callback" in line]
    assert len(of_rerail) == 2  # the import and the callback; the rest is the user's own training
    script = tmp_path / "train.py"
    script.write_text(lines)
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True, timeout=240, capture_output=True)  # fmt: skip
    (path,) = (tmp_path / "profiles").glob("*.profile.json.gz")
    summary = read_summary(path)
    # Steps of milliseconds on a busy machine may ask for a second window, which replaces the first.
    assert summary.first_step >= 20
    assert len(summary.step_s) == 6
    assert len(summary.functions) > 3
