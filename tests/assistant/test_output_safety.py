"""What the job wrote is shown as text: no secret, no control character, no markup of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

RERAIL = Path(sys.executable).parent / "rerail"
Job = Callable[..., Path]

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAQWERTYUIOPASDF12",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCYq1w2e3r4t5y6",
    "HF_TOKEN": "hf_" + "aB3" * 11,
    "WANDB_API_KEY": "ab12cd34ef56ab12cd34ef56ab12cd34ef56ab12",
    "DB_PASSWORD": "correct-horse-battery",
}
URL_PASSWORD = "hunter2secret"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."


def run(
    *arguments: object, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(RERAIL), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def leaky() -> str:
    dump = " ".join(f"{name}={value}" for name, value in SECRETS.items())
    as_json = json.dumps(SECRETS)
    return (
        f"environ: {dump}\nstep 1 loss 2.0\n"
        "[rank3]: Traceback (most recent call last):\n"
        f'[rank3]:   File "/job/train.py", line 3, in <module>  # {dump}\n'
        f"[rank3]:     connect('redis://trainer:{URL_PASSWORD}@10.0.0.7:6379', {as_json})\n"
        f"[rank3]: {OOM} env {dump} redis://trainer:{URL_PASSWORD}@10.0.0.7:6379\n"
        f"[rank1]: RuntimeError: Connection closed by peer {as_json} {dump}\n"
    )


@pytest.mark.parametrize(
    "options", [(), ("--json",), ("--verbose",), ("--quiet",), ("--rank", "3")], ids=str
)
def test_no_secret_is_in_any_output(options: tuple[str, ...], job: Job) -> None:
    done = run("diagnose", *options, job(leaky()))
    assert done.returncode == 0, done.stderr
    out = (done.stdout + done.stderr).decode()
    assert "cuda_oom" in out
    assert [v for v in (*SECRETS.values(), URL_PASSWORD) if v in out] == []


def test_no_secret_is_in_a_digest(job: Job, tmp_path: Path) -> None:
    assert run("diagnose", "-q", "--digest", tmp_path / "d.txt", job(leaky())).returncode == 0
    text = (tmp_path / "d.txt").read_text()
    assert OOM in text
    assert [v for v in (*SECRETS.values(), URL_PASSWORD) if v in text] == []


def test_no_secret_is_in_what_kb_explain_shows() -> None:
    done = run("kb", "explain", f"[rank3]: {OOM} HF_TOKEN={SECRETS['HF_TOKEN']}")
    assert SECRETS["HF_TOKEN"].encode() not in done.stdout + done.stderr


HOSTILE = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/job/\x1b]0;owned\x07\x1b[2Jtrain.py", line 3, in <module>\n'
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. [red]fine[/red] [/] [bold \x1b[31mred\x1b[0m "
    "\u202egnirts\u202c \u2066x\u2069 zero\u200bwidth \x9b31m \x00nul \x08\x08back [link=http://evil]x[/link] :smile:\n"
)


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ((), {}),
        ((), {"NO_COLOR": "1", "TERM": "dumb"}),
        (("--json",), {}),
        (("--verbose",), {}),
    ],
    ids=str,
)
def test_no_control_or_bidi_character_is_in_any_output(
    options: tuple[str, ...], environment: dict[str, str], job: Job
) -> None:
    done = run("diagnose", *options, job(HOSTILE), **environment)
    assert done.returncode == 0
    out = (done.stdout + done.stderr).decode()
    if "--json" in options:
        out += json.loads(out)["first_fault"]["text"]
    bad = {c for c in out if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"}
    assert bad == set()


def test_the_words_of_a_markup_are_printed_as_they_are(job: Job) -> None:
    out = run("diagnose", "--verbose", job(HOSTILE)).stdout.decode()
    assert "[red]fine[/red] [/] [bold red" in out
    assert "[link=http://evil]x[/link] :smile:" in out


@pytest.mark.parametrize("options", [(), ("--json",)], ids=str)
def test_a_hostile_file_name_is_cleaned_as_well(options: tuple[str, ...], tmp_path: Path) -> None:
    name = b"evil[red]\x1b[31m\xe2\x80\xae\xff\n.log"
    (tmp_path / os.fsdecode(name)).write_text(HOSTILE)
    (tmp_path / "gone\x1b[2J.log").symlink_to("/no/such/file")
    done = run("diagnose", *options, tmp_path)
    assert done.returncode == 0, done.stderr
    out = (done.stdout + done.stderr).decode()
    assert "evil[red]" in out
    assert not {c for c in out if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"}
    assert "\\u001b" not in out


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 5000,
        os.urandom(5000),
        b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94.",
        b"\x1f\x8b\x08\x00garbage that is no gzip data",
        b"\xfd7zXZ\x00garbage",
        b"\x28\xb5\x2f\xfdgarbage",
        b"BZhgarbage",
        b"\n" * 10_000,
        b"x" * 100_000,
        b"\xff\xfe\x80" * 1000,
        b'{"key": "run_start"' * 50,
    ],
)
def test_bad_input_is_no_failure_of_ours(
    content: bytes, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    from rerail.assistant.cli.diagnose import diagnose_command

    code = diagnose_command(
        [str(job({"a.log": content, "b.log": "hello\n"}))],
        json_output=True,
        quiet=False,
        verbose=False,
        follow=False,
        rank=None,
        since=None,
    )
    assert code in (3, 10)
    assert json.loads(capsys.readouterr().out)["outcome"] in ("inconclusive", "no_failure")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("diagnose", "--no-such-option", "x"), 2),
        (("diagnose", "--rank", "three", "x"), 2),
        (("no-such-command",), 2),
        (("detect", "/no/such/file"), 11),
    ],
    ids=str,
)
def test_a_wrong_command_is_one_clear_message(arguments: tuple[str, ...], code: int) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert done.stderr.strip()
    assert not done.stdout


def test_an_empty_folder_is_missing_evidence(tmp_path: Path) -> None:
    done = run("diagnose", "--json", tmp_path)
    assert done.returncode == 11
    assert b"no log files" in done.stderr
    assert not done.stdout


def test_a_part_that_cannot_be_read_is_told_and_the_rest_is_judged(job: Job) -> None:
    folder = job({"train.log": f"step 1 loss 2.0\n[rank3]: {OOM}\n"})
    (folder / "gone.log").symlink_to("/no/such/file")
    done = run("diagnose", "--json", folder)
    assert done.returncode == 0
    body = json.loads(done.stdout)
    assert body["failure_type"] == "cuda_oom"
    assert any("gone.log" in item["what"] for item in body["missing"])


def test_quiet_is_one_line(job: Job) -> None:
    done = run("diagnose", "--quiet", job(f"step 1 loss 2.0\n[rank3]: {OOM}\n"))
    assert re.fullmatch(rb"failure \w+ cuda_oom train\.log:2 INC-[a-z2-7]{10}\n", done.stdout)
    assert done.stderr == b""


def test_a_closed_pipe_is_no_error(job: Job) -> None:
    folder = job(leaky() * 50)
    done = subprocess.run(
        f"{RERAIL} diagnose --verbose {folder} | head -1",
        shell=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""
