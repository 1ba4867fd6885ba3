"""A real server of the page over a store with real incidents, and a real browser to look at it."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from rerail.assistant.web import browser_files
from rerail.errors import ConfigError

RERAIL = str(Path(sys.executable).with_name("rerail"))
ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
HOSTILE = "\n".join([
    "2026-03-01 02:00:00 [rank0] step 5 loss 2.0",
    "2026-03-01 02:00:01 [rank1] \x1b[31mred\x1b[0m <script>document.title='owned'</script>",
    "2026-03-01 02:00:01 [rank1] <img src=x onerror=\"document.title='owned'\"> ![x](http://evil.invalid/a.png)",
    "2026-03-01 02:00:02 [rank1] <div hx-get=\"/steal\" hx-trigger=\"load\">x</div> progress 5%\rdata: forged",
    "2026-03-01 02:00:03 [rank1] ValueError: <b hx-get='/steal' hx-trigger='load'>bold</b> javascript:alert(1)",
    "2026-03-01 02:00:04 [rank0] RuntimeError: Connection closed by peer [10.0.0.2]:1234",
]) + "\n"  # fmt: skip
TOKEN = "0123456789abcdef" * 3
SECRET = "whsec_" + "QUFB" * 8
POLICY = "default_mode: propose\napprovals: {expires_s: 3600}\njobs: {group_wait_s: 0}\n"


@dataclass
class Served:
    """The server, and what its store holds."""

    url: str
    port: int
    hang: str
    hostile: str
    many: str
    planned: str
    plan: str
    logs: Path
    environment: dict[str, str]

    def rerail(self, *arguments: str) -> str:
        done = subprocess.run(
            [RERAIL, *arguments],
            env=self.environment, capture_output=True, text=True, check=False, cwd=self.logs,
        )  # fmt: skip
        assert done.returncode in (0, 1, 10), done.stderr
        return done.stdout

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30)

    def token(self, client: httpx.Client, page: str = "/") -> str:
        return client.get(page).text.split('data-token="')[1].split('"')[0]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory):
    try:
        browser_files.check()
    except ConfigError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    folder = tmp_path_factory.mktemp("page")
    logs = folder / "logs"
    (logs / "hostile").mkdir(parents=True)
    (logs / "hostile" / "train.log").write_bytes(HOSTILE.encode())
    (logs / "many.log").write_text(many_ranks(5_000))
    shutil.copytree(DATA / "faultlab" / "hang_one_rank", logs / "hang")
    (logs / "killed.log").write_text("srun: error: gpu-7: task 1: Killed\n")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "secret").write_text(SECRET)
    environment = {
        **os.environ, "RERAIL_DATA_DIR": str(folder / "data"), "RERAIL_POLICY_FILE": str(folder / "policy.yaml"),
        "RERAIL_MODEL": "", "RERAIL_MODEL_URL": "", "RERAIL_WEBHOOK_SECRET_FILE": str(folder / "secret"),
    }  # fmt: skip
    found = Served("", 0, "", "", "", "", "", logs, environment)
    for name, path in (("hang", "hang"), ("hostile", "hostile"), ("many", "many.log")):
        setattr(found, name, json.loads(found.rerail("diagnose", "--json", path))["incident"])
    event = {"job": {"job": "7"}, "state": "FAILED", "logs": [str(logs / "killed.log")]}
    (folder / "event.json").write_text(json.dumps(event))
    found.rerail("hook", str(folder / "event.json"))
    found.rerail("watch", "--once")
    plan = json.loads(found.rerail("plan", "--json"))
    found.planned, found.plan = plan["incident"], plan["id"]
    scheduler = recorded_slurm(folder / "slurm", logs / "job")
    process = subprocess.Popen(
        [RERAIL, "serve", "--port", "0", "--logs", str(logs),
         "--api-token-file", str(folder / "token")],
        env={**environment, "PATH": f"{scheduler}:{os.environ['PATH']}"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("http"):
        raise AssertionError(process.communicate()[1])
    found.url = line.split("/   ")[0]
    found.port = int(found.url.rsplit(":", 1)[1])
    yield found
    process.terminate()
    assert process.communicate(timeout=60)[1] == ""


def recorded_slurm(folder: Path, work: Path) -> Path:
    """Make programs that answer for job 4711 as Slurm 22.05 did, whose output lies in `work`."""
    work.mkdir()
    fault = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    (work / "slurm-4711.out").write_text(fault)
    began = int(work.stat().st_mtime) - 100
    rows = f"4711|FAILED|1:0|n[1-2]|{began}|{began + 500}|{os.geteuid()}"
    told = f"JobId=4711 JobName=x\n   WorkDir={work}\n   StdOut={work}/slurm-4711.out"
    folder.mkdir()
    for name, answers in (
        ("sacct", f"*SubmitLine*|*StdOut*) exit 1;; *4712*) ;; *-X*) echo '4711|4711|FAILED';; *) echo '{rows}';;"),
        ("scontrol", f"*'show job'*) echo '{told}';;"),
        ("sinfo", "*) ;;"),
    ):  # fmt: skip
        (folder / name).write_text(f'#!/bin/sh\ncase "$*" in {answers} esac\n')
        (folder / name).chmod(0o755)
    return folder


def until(tab, expression: str, within_s: float = 60.0) -> None:
    """Wait until an expression is true in a page; `wait_for_function` looks again with what the page's policy forbids."""
    ends = time.monotonic() + within_s
    while not tab.evaluate(expression):
        assert time.monotonic() < ends, expression
        tab.wait_for_timeout(50)


def many_ranks(count: int) -> str:
    rows = [f"2026-03-01 02:00:00 [rank{r}] step 40 loss 2.1" for r in range(count)]
    rows += [f"2026-03-01 02:10:00 [rank{r}] [E301 02:10:00.1 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught "
             f"collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
             f"Timeout(ms)=600000) ran for 600001 milliseconds before timing out." for r in range(count) if r != 437]  # fmt: skip
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")  # its driver holds a running loop: other tests need theirs
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no chromium here: evals/cluster/install.sh chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium, served):
    """A page of the browser that fails the test on any error or any request elsewhere."""
    context = chromium.new_context(base_url=served.url, viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on(
        "console",
        lambda m: (
            problems.append(m.text) if m.type == "error" and "status of 400" not in m.text else None
        ),
    )
    tab.on(
        "request",
        lambda r: problems.append(r.url) if not r.url.startswith((served.url, "data:")) else None,
    )
    tab.on("dialog", lambda d: problems.append(d.message))
    yield tab
    context.close()
    assert problems == []
