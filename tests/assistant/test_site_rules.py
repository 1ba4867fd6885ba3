"""A rule file of the site that is broken is left out and told; the diagnosis goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """schema_version: 1
rules:
  - id: site-frobnicator
    leaf: config_error
    role: initiating
    tier: application
    pattern: '{pattern}'
    source: https://example.org
    matches: ['frobnicator overheated']
"""
BROKEN = {
    "no role": "schema_version: 1\nrules:\n  - {id: x, pattern: foo, tier: library}\n",
    "no YAML": "rules: [\n - {",
    "no list": "2026-01-01: [1]\n",
    "no mapping": "schema_version: 1\nrules: [3]\n",
    "no pattern": GOOD.format(pattern="foo(").replace("site-frobnicator", "other"),
    "no pattern of a column": GOOD.format(pattern="foo").replace("site-frobnicator", "another")
    + "    nearby: 'index,'\n    columns: {'a$': '('}\n",
    "no columns": GOOD.format(pattern="foo").replace("site-frobnicator", "third")
    + "    nearby: 'index,'\n    columns: [a]\n",
    "an id of ours": GOOD.format(pattern="foo").replace("site-frobnicator", "nccl-remote-error"),
}


def rerail(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from rerail.assistant.cli.main import main; main()"
    env = {
        **os.environ,
        "RERAIL_RULES_DIR": str(tmp_path / "rules"),
        "RERAIL_DATA_DIR": str(tmp_path / "data"),
    }
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=env
    )


@pytest.mark.parametrize("pattern", ["frobnicator overheated", "frobnicator(?= overheated)"])
def test_broken_files_are_left_out_and_told(pattern: str, tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "good.yaml").write_text(GOOD.format(pattern=pattern))
    for name, text in BROKEN.items():
        (folder / f"{name}.yaml").write_text(text)
    log = tmp_path / "train.log"
    log.write_text("[rank1]: frobnicator overheated\n")
    done = rerail(tmp_path, "diagnose", str(log), "--json", "--no-store")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failure_type"] == "config_error"
    told = [one["what"] + one.get("why", "") for one in found["missing"]]
    for name in BROKEN:
        assert any(f"{name}.yaml" in text for text in told), name
    lint = rerail(tmp_path, "kb", "lint")
    assert lint.returncode != 0
    assert "Traceback" not in lint.stderr
