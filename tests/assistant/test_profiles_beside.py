"""Profiles among the evidence: beside the verdict of a slow job, and nowhere else."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import rerail.assistant.profiles_beside as beside
from rerail.assistant.agent_tools.facts import facts_of
from rerail.assistant.agent_tools.shown import Shown
from rerail.assistant.agent_tools.tools import Toolbox
from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.postmortem.draft import draft
from rerail.assistant.postmortem.merge import render
from rerail.assistant.postmortem.rule_words import rule_words
from rerail.assistant.presentation.verdict import verdict_view
from rerail.assistant.record import make_incident
from rerail.assistant.sarif import to_sarif
from rerail.domain.diagnosis import Diagnosis
from rerail.errors import EvidenceError
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.incidents import load, record
from rerail.settings import Settings

DLRM = Path(__file__).parents[1] / "data/kineto/dlrm"
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def slow_log(after: float = 0.8) -> str:
    noise = random.Random(1)
    return "".join(
        f"[2026-11-20 10:{i // 60:02d}:{i % 60:02d}] iteration {i:6d}/ 1000 | elapsed time per iteration (ms): "
        f"{1000 * ((0.5 if i < 150 else after) + noise.gauss(0, 0.005)):.1f} | lm loss: {5 - i * 0.001:.4f}E+00 |\n"
        for i in range(300)
    )


def traces(slow: int | None, world: int = 6, name: str = "gemm_a") -> dict[str, str | bytes]:
    """Return small traces; on the slow rank the kernel takes 1.8 times as long."""
    out: dict[str, str | bytes] = {}
    for rank in range(world):
        events = []
        for step in range(4):
            at = step * 10_000.0
            took = 1000.0 + rank + (800.0 if rank == slow else 0.0)
            events += [
                {"ph": "X", "cat": cat, "name": label, "ts": ts, "dur": dur, "tid": 7}
                for label, cat, ts, dur in (
                    (f"ProfilerStep#{step}", "user_annotation", at, 9_000.0),
                    (name, "kernel", at, took),
                    ("ncclDevKernel_AllReduce_Sum", "kernel", at + took, 5_000.0 - took),
                )
            ]
        trace = {"distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": events}
        out[f"prof/rank{rank}.pt.trace.json"] = json.dumps(trace)
    return out


def without_profiles(diagnosis: Diagnosis) -> dict[str, object]:
    row = diagnosis.model_dump()
    return {key: row[key] for key in row if key not in ("profiles", "elapsed_s", "incident")}


def test_a_slow_job_is_explained_from_the_profiles_beside_its_logs(job):
    folder = job({"train.log": slow_log(), **traces(4)})
    outcome = diagnose_paths([folder])
    seen = outcome.diagnosis.profiles
    assert seen is not None
    assert (seen.outcome, seen.ranks, seen.steps) == ("localized", 6, 4)
    assert [one.ranks for one in seen.functions] == [[4]]
    assert seen.functions[0].lost_per_step_s == pytest.approx(0.8e-3, rel=0.02)
    assert "rank 4: all compute kernels" in seen.says
    view = verdict_view(outcome.diagnosis)
    assert "a step" in view.profiles
    assert [(row.function, row.ranks, row.cost) for row in view.slow] == [
        (seen.functions[0].function, "4", "799 us a step")
    ]
    (result,) = to_sarif(outcome.diagnosis)["runs"][0]["results"]
    assert f"Profiles: {seen.says}." in result["message"]["text"]
    assert result["properties"]["profiles"]["functions"][0]["ranks"] == [4]

    incident = make_incident(outcome, [folder])
    assert seen.says in Toolbox(facts_of(incident), Shown(nonce="n")).overview()


def test_the_post_mortem_shows_what_profiles_say(job, tmp_path):
    engine = open_store(Settings(data_dir=tmp_path / "data"))
    folder = job({"train.log": slow_log(), **traces(4)})
    incident = make_incident(diagnose_paths([folder]), [folder])
    with writing(engine) as connection:
        record(connection, incident)
    with reading(engine) as connection:
        file = load(connection, incident.id)
    engine.dispose()
    assert file is not None
    text = render(draft(file, rule_words(file)))
    assert "Beside the logs: profiles of 6 ranks over 4 steps: rank 4" in text


def test_the_verdict_stays_what_the_logs_said(job):
    slow = diagnose_paths([job({"train.log": slow_log(), **traces(4)})]).diagnosis
    alike = diagnose_paths([job({"train.log": slow_log(), **traces(None)})]).diagnosis
    assert slow.profiles is not None
    assert alike.profiles is not None
    assert "no rank and no function stands out" in alike.profiles.says
    assert without_profiles(slow) == without_profiles(alike)
    assert slow.failure_type == "fail_slow_unexplained"
    assert slow.suspects.ranks == []


def test_a_first_fault_leaves_profiles_alone(job):
    assert diagnose_paths([job({"train.log": OOM, **traces(4)})]).diagnosis.profiles is None
    steady = diagnose_paths([job({"train.log": slow_log(0.5), **traces(4)})]).diagnosis
    assert steady.profiles is None


def test_real_traces_of_one_step_blame_nobody(job):
    files = {
        f"prof/{path.name}": gzip.decompress(path.read_bytes())
        for path in sorted(DLRM.glob("*.gz"))
    }
    seen = diagnose_paths([job({"train.log": slow_log(), **files})]).diagnosis.profiles
    assert seen is not None
    assert (seen.outcome, seen.ranks, seen.functions) == ("no_reference", 8, [])
    assert "name nobody: 1 step only" in seen.says


def test_what_cannot_be_judged_is_missing(job, monkeypatch):
    twice = {name.replace("prof/", "later/"): text for name, text in traces(None).items()}
    found = diagnose_paths([job({"train.log": slow_log(), **traces(4), **twice})]).diagnosis
    assert found.profiles is None
    assert any("was already read from" in row.what for row in found.missing)

    monkeypatch.setattr(beside, "MOST_BYTES", 1000)
    found = diagnose_paths([job({"train.log": slow_log(), **traces(4)})]).diagnosis
    assert found.profiles is None
    row = next(row for row in found.missing if "were not judged" in row.what)
    assert row.what.startswith("6 profiles of 0 MB")
    assert "rerail localize" in row.how_to_get


def test_profiles_of_a_smaller_job_are_not_used(job):
    log = "".join(f"[rank{rank}]: world_size=16 started\n" for rank in range(16)) + slow_log()
    outcome = diagnose_paths([job({"train.log": log, **traces(4)})])
    assert outcome.verdict.identities.world_size == 16
    assert outcome.diagnosis.profiles is None
    assert any("of a job of 6 ranks" in row.what for row in outcome.diagnosis.missing)


def test_secrets_and_control_characters_in_names_are_not_shown(job):
    name = "gemm\x1b[31m token=ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    seen = diagnose_paths(
        [job({"train.log": slow_log(), **traces(4, name=name)})]
    ).diagnosis.profiles
    assert seen is not None
    shown = seen.model_dump_json()
    assert "ghp_" not in shown
    assert "\\u001b" not in shown


def test_traces_of_any_name_are_known_by_their_content(job):
    named = {name.replace(".pt.trace", ""): text for name, text in traces(4).items()}
    seen = diagnose_paths([job({"train.log": slow_log(), **named})]).diagnosis.profiles
    assert seen is not None
    assert [one.ranks for one in seen.functions] == [[4]]


def test_a_folder_of_profiles_alone_is_for_localize(job):
    with pytest.raises(EvidenceError, match="holds profiles and no logs") as told:
        diagnose_paths([job(traces(4))])
    assert str(told.value.hint).startswith("rerail localize ")


def test_logs_without_profiles_load_no_numbers(job):
    folder = job({"train.log": "hello\nworld\n", "config.json": '{"lr": 0.1}'})
    code = (
        "import sys\nfrom rerail.assistant.pipeline import diagnose_paths\n"
        f"d = diagnose_paths([{str(folder)!r}]).diagnosis\n"
        "print(d.outcome, [m for m in sys.modules if m == 'numpy' or m.startswith('rerail.tools.profiles')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(" ", 1)[1].strip() == "[]"
