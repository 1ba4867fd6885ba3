"""Learning as its user meets it: confirm, propose, wait, review; the rule is in force and provable."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import FakeModelServer, Reply

LOG = (
    "step 1 loss 2\nstep 2 loss 1\n[rank{n}]: Traceback (most recent call last):\n"
    '[rank{n}]:   File "/j/t.py", line {n}, in x\n'
    "[rank{n}]: RuntimeError: vastfs: lease on shard {n}7 was lost to node n-{n} (epoch {n})\n"
)


@pytest.fixture
def rerail(tmp_path):
    def run(*arguments, **environment):
        return subprocess.run(
            [str(Path(sys.executable).parent / "rerail"), *map(str, arguments)], capture_output=True,
            text=True, timeout=180, check=False,
            env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data"), **environment},
        )  # fmt: skip

    return run


@pytest.fixture
def confirmed(rerail, tmp_path):
    def make(number):
        log = tmp_path / f"{number}.log"
        log.write_text(LOG.format(n=number))
        name = json.loads(rerail("diagnose", "--json", log).stdout)["incident"]
        done = rerail("confirm", name, "--verdict", "wrong", "--type", "shared_fs_error")
        return name, done.stdout

    return make


def test_a_failure_that_the_rules_missed_is_kept_corrected_and_learned(rerail, tmp_path):
    names = []
    for number in (1, 2):
        log = tmp_path / f"missed{number}.log"
        log.write_text(
            f"step 1 loss 2.0\ntessellator arena 0x7f{number} ran dry on shard {number}\n"
        )
        assert json.loads(rerail("diagnose", "--json", log).stdout)["outcome"] == "no_failure"
        names.append(json.loads(rerail("diagnose", "--json", "--keep", log).stdout)["incident"])
        wrong = ("confirm", names[-1], "--verdict", "wrong", "--line", f"{log.name}:2", "--type")
        typo = rerail(*wrong, "shared_fs_eror")
        assert typo.returncode == 2 and "shared_fs_error" in typo.stderr
        assert rerail(*wrong, "shared_fs_error").returncode == 0
    # The other incident's line is of the same cause, not a harmless one that speaks against it.
    for name in names:
        assert "in the shadow" in rerail("kb", "propose", name).stdout


def test_from_a_confirmed_incident_to_a_rule_in_force(rerail, confirmed, tmp_path):
    first, said = confirmed(1)
    assert f"rerail kb propose {first}" in said
    proposed = rerail("kb", "propose", first)
    rule = next(w for w in proposed.stdout.split() if w.startswith("learned-"))
    assert rerail("kb", "review", rule, "--accept").returncode == 2
    assert f"candidate {rule} matched it" in confirmed(2)[1]
    confirmed(3)
    assert "READY" in rerail("kb", "review").stdout
    assert rerail("kb", "review", rule, "--accept", "--by", "bo").returncode == 0
    text = (tmp_path / "data" / "rules" / "learned.yaml").read_text()
    assert first in text and "accepted by bo" in text
    new = tmp_path / "new.log"
    new.write_text(LOG.format(n=8))
    found = json.loads(rerail("diagnose", "--json", new).stdout)
    assert (found["failure_type"], found["status"]) == ("shared_fs_error", "supported")
    assert found["first_fault"]["rule"] == rule
    assert rerail("kb", "test", rule).returncode == 0
    assert "there is nothing to learn" in rerail("kb", "propose", found["incident"]).stderr + (
        rerail("confirm", found["incident"]).stdout
        + rerail("kb", "propose", found["incident"]).stderr
    )


def test_an_accepted_rule_brings_its_case_and_can_be_withdrawn(rerail, confirmed, tmp_path):
    first, _ = confirmed(1)
    said = rerail("kb", "propose", first).stdout
    rule = next(w for w in said.split() if w.startswith("learned-"))
    rerail("kb", "review", rule, "--accept", "--force")
    cases = tmp_path / "data" / "cases.jsonl"
    scored = rerail("eval", "cases", cases, "--no-rewrites", "--json").stdout
    assert json.loads(scored)["asked"]["type"] == 1 and json.loads(scored)["wrong"] == []
    doubt = rerail("confirm", first, "--verdict", "wrong", "--type", "tcp_network_failure").stdout
    assert f"speaks against the accepted rule {rule}" in doubt and not cases.read_text()
    assert "IN DOUBT" in rerail("kb", "review").stdout
    assert "no longer in force" in rerail("kb", "review", rule, "--reject").stdout
    assert rule not in (tmp_path / "data" / "rules" / "learned.yaml").read_text()
    rerail("confirm", first, "--verdict", "wrong", "--type", "shared_fs_error")
    again = rerail("kb", "propose", first)
    assert again.returncode == 2 and "was rejected already" in again.stderr


def test_a_model_proposes_and_code_decides(rerail, confirmed):
    name, _ = confirmed(1)

    def agrees(_):
        return Reply('{"pattern": "vastfs: lease on shard .{0,40}was lost"}')

    for behaviour, words in (
        (agrees, "model fake, 3 of 3 samples agree"),
        (lambda _: Reply('{"pattern": "(a+)+lost"}'), "do not agree"),
        (lambda _: Reply('{"pattern": "RuntimeError"}'), "refused, it matches"),
        (play.status(500), "model unavailable"),
    ):
        with FakeModelServer(behaviour) as server:
            done = rerail("kb", "propose", name, RERAIL_MODEL_URL=server.url, RERAIL_MODEL="fake")
        assert words in done.stdout + done.stderr
        assert "in the shadow" in done.stdout


def test_what_is_not_confirmed_or_known_is_refused_with_a_hint(rerail, tmp_path):
    log = tmp_path / "x.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    rerail("diagnose", log)
    done = rerail("kb", "propose", "last")
    assert done.returncode == 2 and "rerail confirm" in done.stderr
    rerail("confirm", "last")
    assert "the rules knew" in rerail("kb", "propose", "last").stderr
    assert rerail("kb", "review", "learned-none").returncode == 2


def test_filters_come_from_routine_lines_and_leave_no_error_out(rerail, tmp_path):
    for number in (1, 2, 3):
        routine = "".join(
            f"INFO weir passed batch {i} of bucket b{number} after {i % 7} ms\n" for i in range(80)
        )
        noisy = "".join(f"WARNING weir retries batch {i} after failed read\n" for i in range(80))
        log = tmp_path / f"f{number}.log"
        log.write_text(routine + noisy + LOG.format(n=number))
        rerail("diagnose", log)
    done = rerail("kb", "propose", "--filters")
    assert done.stdout.startswith("1 filters proposed") and "weir +passed +batch" in done.stdout
    listed = rerail("kb", "review").stdout
    name = next(w for w in listed.split() if w.startswith("learned-routine-"))
    assert rerail("kb", "review", name, "--accept", "--force", "--by", "bo").returncode == 0
    assert "weir" in (tmp_path / "data" / "filters.yaml").read_text()

    def seen(body):
        seen.text = play.all_text(body)
        return play.echo(body)

    with FakeModelServer(seen) as server:
        rerail("diagnose", tmp_path / "f1.log", RERAIL_MODEL_URL=server.url, RERAIL_MODEL="fake")
    kinds = seen.text.split("Kinds of lines")[1].split("The end of the file")[0]
    assert "weir passed" not in kinds and "weir retries" in kinds


def test_a_model_proposes_filters_and_code_decides(rerail, tmp_path):
    for number in (1, 2, 3):
        routine = "".join(
            f"INFO weir passed batch {i} of bucket b{number} after {i % 7} ms\n" for i in range(80)
        )
        log = tmp_path / f"f{number}.log"
        log.write_text(routine + LOG.format(n=number))
        rerail("diagnose", log)
    for behaviour, words in (
        (
            lambda _: Reply('{"pattern": "weir passed batch .{0,20}of bucket"}'),
            "model fake, 3 of 3 samples agree",
        ),
        (lambda _: Reply('{"pattern": ".{0,120}"}'), "refused"),
        (play.status(500), "model unavailable"),
    ):
        with FakeModelServer(behaviour) as server:
            done = rerail(
                "kb", "propose", "--filters", RERAIL_MODEL_URL=server.url, RERAIL_MODEL="fake"
            )
        assert done.stdout.startswith("1 filters proposed") and words in done.stdout + done.stderr
    # A confirmed incident that prints the line speaks for the filters in the shadow.
    log = tmp_path / "more.log"
    log.write_text(
        "".join(f"INFO weir passed batch {i} of bucket b9 after {i % 7} ms\n" for i in range(80))
        + LOG.format(n=9)
    )
    rerail("diagnose", log)
    assert (
        "learned-routine-"
        in rerail("confirm", "last", "--verdict", "wrong", "--type", "shared_fs_error").stdout
    )


def test_the_named_line_is_read_where_it_was_not_kept_and_refused_where_it_cannot_be(
    rerail, tmp_path
):
    log = tmp_path / "long.log"
    rows = [f"[rank0] step loss {i}" for i in range(3_000)]
    rows[999] = "[rank0] the tessellator arena ran dry on shard 7 with token=hunter2secret"
    log.write_text("\n".join(rows) + "\n")
    rerail("diagnose", "--keep", log)
    confirm = ("confirm", "last", "--verdict", "wrong", "--type", "shared_fs_error", "--line")
    done = rerail(*confirm, "long.log:1000")
    assert (
        done.returncode == 0 and "tessellator arena" in done.stdout and "hunter2" not in done.stdout
    )
    assert "in the shadow" in rerail("kb", "propose", "last").stdout
    for wrong, words in (
        ("long.log:4000", "has 3000 lines"),
        ("lung.log:1", "one of"),
        ("7", "no FILE:LINE"),
    ):
        done = rerail(*confirm, wrong)
        assert done.returncode == 2 and words in done.stderr
    log.unlink()
    done = rerail(*confirm, "long.log:500")
    assert done.returncode == 2 and "was not kept" in done.stderr and "kept lines" in done.stderr
