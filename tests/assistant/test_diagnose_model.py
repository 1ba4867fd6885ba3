"""`diagnose` with a model, as its user meets it: the verdict first, then words, a banner, or Ctrl-C."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import FakeModelServer, Reply

RERAIL = str(Path(sys.executable).parent / "rerail")
LOG = (
    "step 1 loss 2\nstep 2 loss 1\n"
    "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
)


@pytest.fixture
def log(tmp_path):
    (tmp_path / "job.log").write_text(LOG)
    return tmp_path / "job.log"


def environment(tmp_path, url):
    return {
        **os.environ,
        "RERAIL_DATA_DIR": str(tmp_path / "data"),
        "RERAIL_MODEL_URL": url,
        "RERAIL_MODEL": "fake",
        "RERAIL_MODEL_MAX_SECONDS": "20",
    }


def run(tmp_path, url, *arguments):
    return subprocess.run(
        [RERAIL, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
        env=environment(tmp_path, url),
    )  # fmt: skip


def test_the_explanation_stands_below_the_verdict_and_in_the_record(log, tmp_path):
    with FakeModelServer(play.looks_first) as server:
        done = run(tmp_path, server.url, "diagnose", log)
        assert done.returncode == 0
        assert done.stdout.index("VERDICT") < done.stdout.index("EXPLAINED")
        assert "agrees with the rules" in done.stdout
        body = json.loads(run(tmp_path, server.url, "diagnose", "--json", log).stdout)
        assert body["failure_type"] == "cuda_oom" and body["model"]["stand"] == "agrees"
        asked = len(server.requests)
        assert "EXPLAINED" not in run(tmp_path, server.url, "diagnose", "--no-model", log).stdout
        assert len(server.requests) == asked
    assert "model fake explained: agrees" in run(tmp_path, "", "timeline", "last").stdout


@pytest.mark.parametrize("behaviour", [play.status(500), play.malformed, play.lies])
def test_a_useless_model_changes_neither_verdict_nor_exit_code(log, tmp_path, behaviour):
    with FakeModelServer(behaviour) as server:
        done = run(tmp_path, server.url, "diagnose", "--json", log)
    body = json.loads(done.stdout)
    assert done.returncode == 0 and body["failure_type"] == "cuda_oom"
    assert body["model"]["stand"] in ("unavailable", "abstains")


def test_a_wrong_url_is_a_banner(log, tmp_path):
    done = run(tmp_path, "ftp://x", "diagnose", log)
    assert done.returncode == 0 and "model unavailable" in done.stderr and "cuda_oom" in done.stdout


def test_ctrl_c_stops_the_model_and_keeps_the_verdict(log, tmp_path):
    with FakeModelServer(play.slow(60)) as server:
        # Where the tests run in the background of a script, Ctrl-C is ignored and passed on so.
        child = subprocess.Popen(
            ["env", "--default-signal=INT", RERAIL, "diagnose", str(log)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment(tmp_path, server.url),
        )  # fmt: skip
        end = time.monotonic() + 60
        while not server.requests and time.monotonic() < end:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 0 and "cuda_oom" in out
    assert "the explanation was stopped" in err and "Traceback" not in err


def test_half_a_setting_is_told_and_no_secret_is_shown(log, tmp_path):
    done = run(tmp_path, "", "diagnose", log)
    assert done.returncode == 0 and "RERAIL_MODEL_URL is not set" in done.stderr
    shown = subprocess.run(
        [RERAIL, "config", "show"], capture_output=True, text=True, check=False,
        env={**os.environ, "RERAIL_STORE_URL": "postgresql://u:hunter2secret@h/d", "RERAIL_MODEL_KEY": "sesame-sesame", "COLUMNS": "200"},
    ).stdout  # fmt: skip
    assert "store_url" in shown and "hunter2" not in shown and "sesame" not in shown


def in_terminal(child, end, until, seen=""):
    """Read what a command prints into its terminal until the words stand there or it ends."""
    latest = time.monotonic() + 60
    while until not in seen and time.monotonic() < latest:
        if select.select([end], [], [], 0.2)[0]:
            try:
                piece = os.read(end, 65536)
            except OSError:  # Linux: the other side is closed
                return seen
            seen += piece.decode("utf-8", "replace")
    return seen


def test_in_a_terminal_claims_stand_there_before_the_answer_is_whole(log, tmp_path):
    go = threading.Event()

    def held(body):
        answer = json.loads(play.echo(body).text)
        handle = answer["first_fault"]
        answer["claims"].append(play.claim("quote", handle, "says", "out of memory"))
        del answer["summary"]
        answer["summary"] = f"It needs less memory [{handle}]."
        return Reply(json.dumps(answer), hold_after="It needs", go=go)

    with FakeModelServer(held) as server:
        child, end = pty.fork()
        if child == 0:
            os.execve(
                RERAIL, [RERAIL, "diagnose", str(log)],
                {**environment(tmp_path, server.url), "RERAIL_MODEL_SAMPLES": "1",
                 "TERM": "xterm", "COLUMNS": "200"},
            )  # fmt: skip
        seen = in_terminal(child, end, 'says "out of memory"')
        seen = in_terminal(child, end, "requests: 1", seen)
        assert seen.index("VERDICT") < seen.index("asking fake") < seen.index("EXPLAINED")
        assert (
            "structured: " in seen
            and "job.log:3 is the first fault" in seen
            and "ITS WORDS" not in seen
        )
        go.set()
        seen = in_terminal(child, end, "(it never says this)", seen)
        os.close(end)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert "It needs less memory" in seen.split("ITS WORDS")[1]
    assert seen.count('says "out of memory"') == 1 and "agrees with the rules" in seen
