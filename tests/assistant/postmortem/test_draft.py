"""The draft holds the facts of the record, marks what is not shown, and no log line becomes markup."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rerail.assistant.agent_tools.facts import facts_of
from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.postmortem.document import Sentence
from rerail.assistant.postmortem.draft import draft
from rerail.assistant.postmortem.impact import impact_of, in_words
from rerail.assistant.postmortem.kept import keep_draft
from rerail.assistant.postmortem.markup import code, escaped
from rerail.assistant.postmortem.merge import merge, render
from rerail.assistant.postmortem.model_words import model_words
from rerail.assistant.postmortem.page import page
from rerail.assistant.postmortem.review import review
from rerail.assistant.postmortem.rule_words import rule_words
from rerail.assistant.record import make_incident
from rerail.domain.incident import Confirmation, EntrySource, SignOff, TimelineEntry
from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import FakeModelServer, Reply
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.incidents import append, load, record
from rerail.knowledge_base.store.judgement import confirm, sign_off
from rerail.settings import Settings
from rerail.tools.forecast.compare import Expected

NOON = "2026-03-02T12:00:00.000Z"
LOG = (
    "".join(
        f"2026-03-01 03:00:{s:02d} [rank0]: step {s} loss {9 / s:.3f} step_time 2.0s\n"
        for s in range(1, 50)
    )
    + "2026-03-01 03:01:00 [rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB "
    "![x](http://evil.test/q) <script>alert(1)</script> | pipe `tick`\n"
    "2026-03-01 03:11:00 [rank0]: RuntimeError: Connection closed by peer [10.0.0.7]:4711\n"
)


@pytest.fixture
def stored(job, tmp_path):
    engine = open_store(Settings(data_dir=tmp_path / "data"))

    def keep(texts):
        folder = job(texts)
        incident = make_incident(diagnose_paths([folder]), [folder])
        with writing(engine) as connection:
            record(connection, incident)

        def again():
            with reading(engine) as connection:
                return load(connection, incident.id)

        return engine, again

    yield keep
    engine.dispose()


def test_the_facts_of_the_record_are_in_the_draft(stored):
    engine, again = stored(LOG)
    name = again().row.id
    with writing(engine) as connection:
        confirm(
            connection, name,
            Confirmation(verdict="wrong", by="ann", time=NOON, failure_type="host_oom_kill"),
        )  # fmt: skip
        append(
            connection, name,
            TimelineEntry(time=NOON, source=EntrySource.RECOVERY, kind="executed", text="drained gpu-1", actor="bo"),
        )  # fmt: skip
    file = again()
    text = render(draft(file, rule_words(file)))
    impact = impact_of(file.incident)
    assert impact.unnoticed_s == 600 and "10 min" in text
    assert "bo: drained gpu-1" in text and "host\\_oom\\_kill" in text
    assert file.incident.rules_version in text and "DRAFT, not reviewed" in text
    # Blameless: people are named where they acted, and nowhere in the words.
    words = text.split("rerail:summary")[1].split("rerail:response")[0]
    assert "ann" not in re.sub(r"rerail:timeline.*?rerail:end", "", words, flags=re.S).split()


def test_log_text_never_becomes_markup_or_html(stored):
    _, again = stored(LOG)
    file = again()
    document = draft(file, rule_words(file))
    html = page(render(document, "\n\n![loss](x-loss.svg)"), document.charts)
    assert "<script" not in html and "<img" not in html and "href" not in html
    assert html.count("<svg") == 1 and "default-src 'none'" in html and "rerail:" not in html
    assert "tick" in html


def test_a_sentence_without_evidence_is_marked():
    assert Sentence("It was the fan.").markdown() == "It was the fan. \\[needs evidence\\]"
    assert Sentence("It was the fan", ("E1",)).markdown() == "It was the fan. \\[E1\\]"


@pytest.mark.parametrize("text", ["a`b``c", "`", "x | y", "[a](http://b) <i> *c* _d_"])
def test_escaping(text):
    assert "\n" not in code(text) and "|" not in code(text)
    assert "](http://" not in escaped(text) and "<i>" not in escaped(text)


def drafts(file, behaviour):
    with FakeModelServer(behaviour) as server:
        settings = Settings(model_url=server.url, model="fake", model_max_seconds=60)
        return model_words(facts_of(file.incident), settings, rule_words(file))


def test_a_models_sentences_are_checked_one_by_one(stored):
    _, again = stored(LOG)
    text = (
        '{"summary": [{"text": "CUDA out of memory. Delete the checkpoint folder.", "lines": ["L1"]},'
        '{"text": "gpu-9 overheated at 97 C.", "lines": ["L1"]}, {"text": "Bad luck.", "lines": []}],'
        '"factors": "none", "lucky": [7, {"text": "![a](http://e.test)", "lines": ["L99"]}]}'
    )
    words = drafts(again(), lambda _: Reply(text))
    rules = rule_words(again())
    # Only what quotes its line stands among the facts; the rest stands apart, marked.
    assert words.summary[len(rules.summary) :] == [Sentence("CUDA out of memory.", ("E1",))]
    assert words.factors == rules.factors and words.lucky == rules.lucky
    assert len(words.unchecked) == 4 and "e.test" not in "".join(words.unchecked)
    assert "gpu-9 does not stand" in "".join(words.unchecked)
    assert 'suggests: "Delete the checkpoint folder' in "".join(words.unchecked)


@pytest.mark.parametrize(
    "behaviour", [play.malformed, play.status(500), play.garbage, lambda _: Reply("[]")]
)
def test_without_a_usable_model_the_rules_words_stand(stored, behaviour):
    _, again = stored(LOG)
    file = again()
    words = drafts(file, behaviour)
    assert words.summary == rule_words(file).summary and "model unavailable" in words.banner


def test_the_draft_says_whose_words_they_are(stored):
    _, again = stored(LOG)
    nothing = drafts(again(), lambda _: Reply("{}"))
    assert nothing.by == "rules" and "wrote no sentence" in nothing.banner
    line = {"text": "CUDA out of memory.", "lines": ["L1"]}
    lucky = drafts(again(), lambda _: Reply(json.dumps({"lucky": [line]})))
    assert lucky.by == "the rules; 1 sentences of model fake that quote the lines they cite"
    assert not lucky.banner and lucky.summary == rule_words(again()).summary


def test_words_of_a_model_never_stand_below_an_earlier_signature(stored):
    """A sign-off covers the words that it saw; what a model writes later is a draft again."""
    engine, again = stored(LOG)
    name = again().row.id
    with writing(engine) as connection:
        confirm(connection, name, Confirmation(verdict="right", by="eve", time=NOON))
        sign_off(connection, name, SignOff(by="eve", time=NOON))
    advice = {"summary": [{"text": "It was a loose optical cable.", "lines": ["L1"]}]}
    words = drafts(again(), lambda _: Reply(json.dumps(advice)))
    text = render(draft(again(), words))
    assert "Reviewed and signed off" not in text and "they are not reviewed" in text
    assert "Reviewed and signed off by eve" in render(draft(again(), rule_words(again())))
    facts, _, own = text.partition("## In the model's words, not verified")
    assert "optical" not in facts and "optical cable" in own
    # Signed again after the draft was written: that text is covered, another is not.
    with writing(engine) as connection:
        keep_draft(connection, name, text, words.digest)
        sign_off(connection, name, SignOff(by="eve", time=NOON))
    assert "Reviewed and signed off by eve" in render(draft(again(), words))
    other = drafts(again(), lambda _: Reply(json.dumps(advice).replace("loose", "torn")))
    assert "they are not reviewed" in render(draft(again(), other))


def test_several_incidents_fold_into_one_review(stored):
    files = [stored(LOG.replace("step 1 ", f"step 1 try {n} "))[1]() for n in range(3)]
    text = render(
        review(
            files, since="2026-03-01T00:00:00.000Z", until="2026-03-08T00:00:00.000Z", about="job 7"
        )
    )
    assert "3 incidents in 7 d\n" in text and "| cuda_oom | framework | 3 |" in text
    assert "mean time between incidents: 56 h\n" in text
    assert "seen the same way: 3 incidents" in text
    assert "known for 3 of 3" in text and "corrected" not in text


def test_a_correction_behind_the_sign_off_is_told(stored):
    engine, again = stored(LOG)
    name = again().row.id
    with writing(engine) as connection:
        confirm(connection, name, Confirmation(verdict="right", by="ann", time=NOON))
        sign_off(connection, name, SignOff(by="ann", time=NOON))
    assert "signed off by ann" in render(draft(again(), rule_words(again())))
    with writing(engine) as connection:
        late = Confirmation(
            verdict="wrong", by="eve", time="2026-03-03T12:00:00.000Z", failure_type="host_oom_kill"
        )
        confirm(connection, name, late)
    text = render(draft(again(), rule_words(again())))
    assert (
        "DRAFT" in text
        and "on 2026-03-03 the sign-off is no longer in force; said after it" in text
    )
    table = render(
        review([again()], since=NOON, until="2026-03-08T00:00:00.000Z", about="all jobs")
    )
    assert "| host_oom_kill | corrected |" in table


def test_durations_in_words():
    assert [in_words(s) for s in (0.25, 90, 600, 623, 7200, 7500)] == [
        "250 ms", "90 s", "10 min", "10 min 23 s", "2 h", "2 h 5 min",
    ]  # fmt: skip


def test_the_command_writes_keeps_edits_and_the_case_is_scored(tmp_path, job):
    import os
    import subprocess
    import sys

    def run(*arguments):
        return subprocess.run(
            [str(Path(sys.executable).parent / "rerail"), *map(str, arguments)], capture_output=True,
            text=True, check=False, env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data")},
        )  # fmt: skip

    run("diagnose", job(LOG))
    out = tmp_path / "pm" / "x.html"
    assert run("postmortem", "last", "-o", out).returncode == 0
    source = out.with_suffix(".md")
    source.write_text(source.read_text().replace("- Owner: -", "- Owner: Ann"))
    run("confirm", "last")
    done = run("signoff", "last", "--resolution", "smaller batch")
    again = run("postmortem", "last", "-o", out)
    assert "kept as edited: status" in again.stderr
    assert "Owner: Ann" in out.read_text() and "smaller batch" in out.read_text()
    assert "<svg" in out.read_text()
    scored = run("eval", "cases", tmp_path / "data" / "cases.jsonl", "--no-rewrites")
    assert "cases.jsonl" in done.stdout and scored.returncode == 0 and "1/1" in scored.stdout


def test_a_job_without_a_gpu_is_counted_in_ranks(stored):
    cpu = LOG.replace(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "KeyError: 'x'"
    )
    text = render(draft(stored(cpu)[1](), rule_words(stored(cpu)[1]())))
    assert (
        "ranks of the job" in text
        and "GPU" not in text.split("rerail:impact")[1].split("rerail:end")[0]
    )
    assert "GPUs of the job" in render(draft(stored(LOG)[1](), rule_words(stored(LOG)[1]())))


@pytest.mark.parametrize("stamp", ["", "2026-03-01 03:01:00 ", "[  812.345678] "])
def test_the_first_fault_stands_in_the_timeline_whatever_the_clock(stored, stamp):
    log = (
        "step 1 loss 2\n" * 3
        + f"{stamp}[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    _, again = stored(log)
    file = again()
    text = render(draft(file, rule_words(file)))
    timeline = text.split("rerail:timeline")[1].split("rerail:end")[0]
    assert timeline.count("first fault: ") == 1 and "OutOfMemoryError" in timeline


def test_an_edited_status_stays_one_block_with_the_persons_rows(stored):
    engine, again = stored(LOG)
    before = render(draft(again(), rule_words(again())))
    edited = before.replace("- Owner: -", "- Owner: ann").replace(
        "- Severity: -", "- Severity: 2\nwatched by bo"
    )
    with writing(engine) as connection:
        confirm(connection, again().row.id, Confirmation(verdict="right", by="ann", time=NOON))
    for _ in range(2):
        edited = merge(draft(again(), rule_words(again())), edited).text
    status = edited.split("rerail:status")[1].split("rerail:end")[0]
    assert status.count("- State:") == 1 and "right, by ann" in status
    assert "- Owner: ann" in status and "- Severity: 2" in status and "watched by bo" in status
    assert "New in the record" not in status


def test_a_title_is_no_markup(stored):
    _, again = stored(LOG)
    document = draft(again(), rule_words(again()))
    document = replace(document, title="Post-mortem <img src=x> [a](http://e.test) *b*")
    text = render(document)
    assert "<img" not in page(text) and "](http" not in text.splitlines()[0]
    assert "Post-mortem <img" not in text and "&lt;img src=x&gt;" in page(text).split("</title>")[0]
    assert merge(document, text).text.count("rerail:title") == 1


def test_impact_is_figured_where_the_facts_allow(stored):
    _, again = stored(LOG)
    file = again()
    impact = impact_of(file.incident)
    assert impact.to_the_end_s == 600 and impact.idle_gpu_hours is not None
    text = render(draft(file, rule_words(file)))
    assert "time from the first fault to the last line | 10 min" in text


def test_a_run_that_is_slow_from_its_first_step_cost_what_the_forecast_says_and_no_idle_time(
    job, tmp_path
):
    lines = "".join(
        f"2026-03-01 03:{s // 25:02d}:{s % 25 * 2:02d} [rank0]: step {s} loss 2.0 step_time {2.0 + s % 3 / 10:.1f}s\n"
        for s in range(1, 200)
    )
    folder = job({"rank0.log": lines})
    expected = Expected("steps.csv", np.linspace(1.6, 1.8, 101))
    outcome = diagnose_paths([folder], expected=expected)
    diagnosis = outcome.diagnosis
    assert diagnosis.failure_type == "fail_slow_unexplained"
    assert diagnosis.headline.startswith(
        "The run took 1.24 times the forecast's step time from its first step on"
    )
    assert "became slow" not in diagnosis.headline
    assert diagnosis.cost.idle_gpu_hours is None
    assert not any(text.startswith("idle") for text in diagnosis.cost.covers)
    impact = impact_of(make_incident(outcome, [folder]))
    assert impact.ran_on and impact.idle_gpu_hours is None
    assert impact.gpu_hours == impact.slower_gpu_hours == pytest.approx(196 * 0.4 / 3600, abs=0.01)
    engine = open_store(Settings(data_dir=tmp_path / "data"))
    incident = make_incident(outcome, [folder])
    with writing(engine) as connection:
        record(connection, incident)
    with reading(engine) as connection:
        file = load(connection, incident.id)
    text = render(draft(file, rule_words(file)))
    engine.dispose()
    assert "idle" not in text and "| together | 0.02 rank h |" in text
    assert "lost to steps slower than the forecast" in text
