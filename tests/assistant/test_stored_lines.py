"""After storing, a search looks into the file while it lies there; else it says how much was kept."""

import gzip
import os

import pytest

from rerail.assistant.agent_tools.shown import Shown
from rerail.assistant.agent_tools.tools import Toolbox
from rerail.assistant.explained import facts_for
from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.record import make_incident
from rerail.assistant.stored_lines import StoredSource
from rerail.assistant.web.log_page import _shown
from rerail.log_parsers import line_marks, window

NEEDLE = (
    "2026-03-01 03:00:00 [rank0]: widget 4711 was calibrated with HF_TOKEN=hf_" + "aB3" * 10 + "\n"
)
LOG = (
    "".join(f"[rank{n % 4}]: step {n} loss {n % 7}.25 padding {'x' * 60}\n" for n in range(20_000))
    + NEEDLE
    + "".join(f"[rank{n % 4}]: step {n} loss 2.5 padding {'x' * 60}\n" for n in range(20_000))
    + "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
)


@pytest.fixture(params=["folder", "file", "gzip"])
def stored(request, tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    path = folder / ("train.log.gz" if request.param == "gzip" else "train.log")
    data = LOG.encode()
    path.write_bytes(gzip.compress(data) if request.param == "gzip" else data)
    given = [str(path)] if request.param == "file" else [str(folder)]
    return path, make_incident(diagnose_paths(given), given)


def grep(incident, words="widget 4711"):
    return Toolbox(facts_for(incident), Shown()).grep(words)


def test_what_was_not_kept_is_found_in_the_file_and_masked(stored):
    _, incident = stored
    assert not any("widget" in line.text for line in incident.snapshot.lines)
    said = grep(incident)
    assert said.startswith("1 lines\n") and ":20001 rank 0" in said
    assert "aB3" not in said and "[redacted]" in said
    box = Toolbox(facts_for(incident), Shown())
    name = facts_for(incident).lines.files()[0]
    assert "widget" in box.window(f"{name}:20001", 1, 1)


def test_a_file_that_is_gone_or_changed_is_told(stored):
    path, incident = stored
    path.write_bytes(path.read_bytes() + b"one more line\n")
    assert "gone or changed since; only the" in grep(incident)
    path.unlink()
    said = grep(incident)
    assert "no line holds" in said and "40,002 were searched" in said
    assert "out of memory" in grep(incident, "CUDA memory")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes links of another account")
def test_a_log_that_its_owner_swaps_for_a_link_to_a_file_of_ours_is_not_shown(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    log = folder / "train.log"
    log.write_text(LOG)
    incident = make_incident(diagnose_paths([str(folder)]), [str(folder)])
    assert StoredSource(incident).lying("train.log") is not None
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * log.stat().st_size)
    log.unlink()
    log.symlink_to(secret)
    os.lchown(log, 4321, 4321)
    assert StoredSource(incident).lying("train.log") is None


def test_the_log_page_finds_a_cited_line_by_the_marks_of_the_diagnosis(tmp_path, monkeypatch):
    monkeypatch.setattr(line_marks, "FIRST", 1 << 20)
    path = tmp_path / "train.log"
    path.write_text(LOG)
    incident = make_incident(diagnose_paths([str(path)]), [str(path)])
    first = incident.diagnosis.first_fault
    assert StoredSource(incident).marks(first.file)
    monkeypatch.setattr(window, "index_of", None)  # whoever counts the whole file fails
    shown = _shown(incident, StoredSource(incident), first.file, first.line, None, "", "")
    assert first.line == 40_002 and shown.live
    assert shown.lines[-1].number == first.line and "OutOfMemory" in shown.lines[-1].text
