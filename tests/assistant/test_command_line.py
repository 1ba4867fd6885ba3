"""The command line as its user meets it: exit codes, JSON, errors, secrets, and a frozen surface.

To accept a changed surface or schema: UPDATE_SNAPSHOTS=1 pytest tests/assistant
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RERAIL = Path(sys.executable).parent / "rerail"
DATA = Path(__file__).parents[1] / "data"
OOM = 'step 1 loss 3.0\n[rank5]: Traceback (most recent call last):\n[rank5]:   File "/job/t.py", line 8, in <module>\n[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.11 GiB\n'


def run(*arguments, stdin="", cwd=None, **environment):
    return subprocess.run(
        [str(RERAIL), *map(str, arguments)], input=stdin, capture_output=True, text=True, cwd=cwd,
        env={**os.environ, **environment}, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def log(tmp_path):
    def write(text, name="job.log"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_failure_is_exit_0_and_names_the_line(log):
    done = run("diagnose", log(OOM))
    assert done.returncode == 0 and "cuda_oom" in done.stdout and "job.log:4" in done.stdout


def test_no_failure_is_exit_3(log):
    assert (
        run("diagnose", "-q", log("step 1 loss 3\nstep 2 loss 2\nTraining completed.\n")).returncode
        == 3
    )


def test_inconclusive_is_exit_10(log):
    assert run("diagnose", log("hello\n")).returncode == 10


@pytest.mark.parametrize("argument", ["", "/no/such/file", "no*such"])
def test_missing_evidence_is_exit_11_with_a_hint(argument):
    done = run("diagnose", argument)
    assert done.returncode == 11 and done.stderr.startswith("rerail: ") and "try:" in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout


def test_usage_is_exit_2(log):
    assert run("diagnose").returncode == 2
    done = run("diagnose", "--since", "yesterdayish", log(OOM))
    assert done.returncode == 2 and "--since" in done.stderr


def test_json_is_one_object_of_the_schema(log):
    from rerail.domain.diagnosis import Diagnosis

    done = run("diagnose", "--json", log(OOM))
    body = json.loads(done.stdout)
    assert Diagnosis.model_validate(body).failure_type == "cuda_oom"
    assert (
        body["first_fault"]["line"] == 4
        and body["first_fault"]["rank"] == 5
        and body["schema_version"] == 1
    )


def test_standard_input_and_relative_names(log, tmp_path):
    assert (
        json.loads(run("diagnose", "--json", "-", stdin=OOM).stdout)["first_fault"]["file"]
        == "<stdin>"
    )
    log(OOM)
    assert (
        json.loads(run("diagnose", "--json", tmp_path).stdout)["first_fault"]["file"] == "job.log"
    )


def test_rank_and_since_narrow(log):
    text = (
        OOM
        + '[rank9]: Traceback (most recent call last):\n[rank9]:   File "/job/t.py", line 8, in <module>\n[rank9]: ValueError: x\n'
    )
    assert json.loads(run("diagnose", "--json", "--rank", 9, log(text)).stdout)["suspects"][
        "ranks"
    ] == [9]
    old = "2024-01-01 00:00:00 RuntimeError: CUDA out of memory. Tried to allocate 1 GiB\n"
    new = "2024-06-01 00:00:00 ModuleNotFoundError: No module named 'flash_attn'\n"
    assert (
        "module_not_found" in run("diagnose", "-q", "--since", "2024-03-01", log(old + new)).stdout
    )


def test_secrets_markup_and_escapes_never_reach_the_screen(log):
    text = OOM.replace(
        "Tried",
        "hf_abcdefghijklmnopqrstuvwxyz012345 password=hunter2222 [red]x[/red] [/] \x1b]0;evil\x07 \u202e Tried",
    )
    path = log(text)
    for options in ([], ["--json"], ["--verbose"], ["--digest", str(path.with_name("d.txt"))]):
        done = run("diagnose", *options, path)
        out = done.stdout + done.stderr
        assert (
            "hunter2222" not in out
            and "hf_abcdef" not in out
            and "\x07" not in out
            and "\u202e" not in out
        )
        assert done.returncode == 0
    assert "[red]x[/red]" in run("diagnose", path).stdout
    assert "hunter2222" not in path.with_name("d.txt").read_text()


def test_a_pipe_gets_no_colour(log):
    assert "\x1b" not in run("diagnose", log(OOM), NO_COLOR="1").stdout


def test_dumps_give_a_verdict():
    folder = next(
        p
        for p in sorted((DATA / "flight_recorder").iterdir())
        if p.is_dir() and p.name.startswith("gpu_error")
    )
    body = json.loads(run("diagnose", "--json", folder).stdout)
    assert body["suspects"]["ranks"] == [9, 14]


def test_an_unknown_setting_is_named(log, tmp_path):
    (tmp_path / "rerail.toml").write_text("worker = 3\n")
    done = run("diagnose", log(OOM), cwd=tmp_path)
    assert done.returncode == 2 and "worker" in done.stderr and "workers" in done.stderr


def test_a_setting_from_the_environment(log):
    done = run("diagnose", "-q", log(OOM), RERAIL_SCAN_ENGINE="re")
    assert "cuda_oom" in done.stdout
    assert run("diagnose", log(OOM), RERAIL_SCAN_ENGINE="nonsense").returncode == 2


def test_kb_commands(log):
    assert (
        "WINS"
        in run("kb", "explain", "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB").stdout
    )
    assert "fallen off the bus" in run("kb", "code", "xid", "79").stdout.lower()
    assert run("kb", "code", "xid", "424242").returncode == 2


def test_detect_reads_a_log(log):
    text = "".join(f"step {i} loss 2.0 step_time {0.5 if i < 40 else 0.9}\n" for i in range(1, 90))
    done = run("detect", "--json", log(text))
    assert json.loads(done.stdout)["series"][0]["outcome"] == "fail_slow"


def test_follow_prints_a_changed_verdict(tmp_path, capsys, monkeypatch):
    from rerail.assistant import follow

    path = tmp_path / "live.log"
    path.write_text("step 1 loss 3\n")
    looks = []

    def grow(_):
        looks.append(1)
        if len(looks) == 1:
            path.write_text("step 1 loss 3\n" + OOM)
        elif len(looks) == 2:
            path.write_text("step 1\n")

    monkeypatch.setattr(follow.time, "sleep", grow)
    follow.follow_command([str(path)], json_output=False, quiet=True, polls=4)
    captured = capsys.readouterr()
    assert [x.split()[1] for x in captured.out.splitlines()] == [
        "no_failure",
        "failure",
        "inconclusive",
    ]
    assert "truncated" in captured.err


def test_the_command_line_imports_nothing_heavy():
    code = "import sys, rerail.assistant.cli.main; print([m for m in ('numpy','pyarrow','pydantic','rich','torch','hyperscan') if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_a_small_diagnosis_imports_no_extra(log):
    code = (
        "import sys\nfrom rerail.assistant.pipeline import diagnose_paths\n"
        f"diagnose_paths([{str(log(OOM))!r}])\nprint([m for m in ('numpy','pyarrow','pandas','torch','langchain','chromadb') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def surface():
    import typer

    from rerail.assistant.cli.main import app

    def walk(command):
        if hasattr(command, "commands"):
            return {name: walk(child) for name, child in sorted(command.commands.items())}
        return sorted("/".join(p.opts + p.secondary_opts) for p in command.params)

    return walk(typer.main.get_command(app))


@pytest.mark.parametrize("name", ["cli_surface", "diagnosis_schema"])
def test_frozen(name):
    from rerail.domain.diagnosis import Diagnosis

    now = surface() if name == "cli_surface" else Diagnosis.model_json_schema()
    file = DATA / f"{name}.json"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    assert json.loads(file.read_text()) == now


def test_a_call_finds_its_command_as_in_the_whole_command_line():
    from typer.main import get_command

    from rerail.assistant.cli.main import app
    from rerail.assistant.cli.quick_start import for_call

    whole = get_command(app)
    for name, command in whole.commands.items():
        part = get_command(for_call(app, [name, "--anything"]))
        assert list(part.commands) == [name]
        assert [one.opts for one in part.commands[name].params] == [
            one.opts for one in command.params
        ]
        assert set(getattr(part.commands[name], "commands", ())) == set(
            getattr(command, "commands", ())
        )
    for arguments in (["diagnos"], ["--version", "diagnose"]):
        assert for_call(app, arguments) is app


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--help", "diagnose"]])
def test_the_list_of_commands_is_that_of_the_whole_command_line(arguments):
    from typer.testing import CliRunner

    from rerail.assistant.cli.main import app
    from rerail.assistant.cli.quick_start import for_call

    listed, whole = (CliRunner().invoke(a, arguments) for a in (for_call(app, arguments), app))
    assert listed.output == whole.output and "diagnose" in listed.output
    assert listed.exit_code == whole.exit_code


HEAVY = ("typer", "pydantic", "pydantic_core", "rich", "sqlalchemy", "numpy", "pyarrow", "torch", "yaml",
    "email", "importlib.metadata", "subprocess", "socket", "statistics", "calendar", "gzip", "asyncio",
    "multiprocessing", "concurrent.futures", "logging", "rerail.assistant.cli.main")  # fmt: skip


def test_a_plain_diagnosis_loads_nothing_heavy(log, tmp_path):
    path = str(log(OOM))
    code = (
        "import sys\nfrom rerail.assistant.entry import main\n"
        f"sys.argv = ['rerail', 'diagnose', {path!r}, '--json', '--job', '7']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)\n"
        "print(*sorted(m.__file__ for n, m in sys.modules.items() if n.startswith('rerail.') and m.__file__), file=sys.stderr)"
    )
    env = {**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data")}
    for _ in range(2):  # the first fills the cache
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
        )
    heavy, files = done.stderr.splitlines()
    assert heavy == "[]"
    assert json.loads(done.stdout)["failure_type"] == "cuda_oom"
    early = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    sources = [Path(file) for file in files.split() if file.endswith(".py")]
    assert len(sources) > 100
    assert [
        file.name for file in sources
        if file.name != "late_dataclass.py" and early.search(file.read_text(encoding="utf-8"))
    ] == []  # fmt: skip
