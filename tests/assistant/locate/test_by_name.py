"""A job by its name on the other faces: `rerail plan 4711`, the MCP tool, the page; with the guards of each."""

import asyncio
import json

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from mcp import Client
from typer.testing import CliRunner

from rerail.assistant.cli.main import app
from rerail.assistant.locate.by_name import diagnose_for_others
from rerail.assistant.mcp_server import create_server
from rerail.assistant.web import diagnose_page
from rerail.assistant.web.forms import written_here
from rerail.recovery.site_policy import JobLayout
from rerail.settings import load_settings

FAULT = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("RERAIL_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "policy.yaml").write_text("default_mode: propose\n")
    monkeypatch.setenv("RERAIL_POLICY_FILE", str(tmp_path / "policy.yaml"))
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


@pytest.fixture
def failed(asked):
    slurm = asked()
    (slurm.folder / "task-1.log").write_text(FAULT)
    slurm.states = ["FAILED"]
    return slurm


def by_mcp(folders, *paths):
    async def call():
        async with Client(create_server(folders, diagnose_for_others).server) as client:
            return await client.call_tool("diagnose", {"paths": list(paths)})

    return asyncio.run(call())


def by_page(folders, path):
    """Return what the run that a form starts came to."""
    runs = []
    real = diagnose_page.Runs.start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            diagnose_page.Runs,
            "start",
            lambda self, *rest, **how: runs.append(real(self, *rest, **how)) or runs[-1],
        )
        page = FastAPI()
        page.include_router(diagnose_page.routes(None, folders, own_account=False))
        page.dependency_overrides[written_here] = lambda: "ann"
        answer = TestClient(page).post("/diagnose", data={"path": path}, follow_redirects=False)
    assert answer.status_code == 303
    assert runs[0].done.wait(120)
    return runs[0]


def stored(*arguments):
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_plan_for_a_job_that_was_never_diagnosed(failed):
    plan = stored("plan", "7", "--json")
    assert plan["job"]["job"] == "7"
    assert plan["incident"].startswith("INC-")
    again = stored("plan", "slurm://7", "--json")
    assert (again["incident"], again["id"]) == (plan["incident"], plan["id"])


def test_a_number_that_begins_the_id_of_a_plan_is_that_plan(failed, monkeypatch):
    plan = stored("plan", "7", "--json")
    from rerail.recovery.store import plans

    monkeypatch.setattr(plans, "find_id", lambda connection, text: plan["id"])
    done = CliRunner().invoke(app, ["plan", "12", "--json"])
    assert json.loads(done.stdout)["id"] == plan["id"]
    assert "slurm://12 is the job of that number" in done.stderr


def test_no_plan_for_a_job_that_is_not_known(failed):
    failed.states = []
    done = CliRunner().invoke(app, ["plan", "7"])
    assert done.exit_code != 0
    assert "Slurm knows no job 7" in str(done.exception)


def test_the_tool_reads_of_a_job_what_lies_in_the_folders_of_the_server(failed, tmp_path):
    inside = by_mcp((failed.folder,), "7").structured_content
    assert inside["failure_type"] == "cuda_oom"
    other = tmp_path / "other"
    other.mkdir()
    outside = by_mcp((other,), "7").structured_content
    assert outside["failure_type"] != "cuda_oom"
    told = [one["what"] for one in outside["missing"] if "task-1.log" in one["what"]]
    assert "is not in a folder that this server reads" in told[0]
    refused = by_mcp((other,), "7", "8")
    assert refused.is_error
    assert "one job at a time" in refused.content[0].text
    assert "is not in a folder" in by_mcp((other,), str(failed.folder)).content[0].text


def test_a_link_in_a_folder_of_the_server_leads_nowhere_else(failed, tmp_path):
    secret = tmp_path / "secret.log"
    secret.write_text(FAULT)
    (failed.folder / "task-1.log").unlink()
    (failed.folder / "task-1.log").symlink_to(secret)
    found = by_mcp((failed.folder,), "7").structured_content
    assert found["failure_type"] != "cuda_oom"


def test_what_the_policy_names_is_read_wherever_it_lies(failed, asked, tmp_path):
    asked(JobLayout(logs=(f"{failed.folder}/task-*.log",)))
    other = tmp_path / "other"
    other.mkdir()
    assert by_mcp((other,), "7").structured_content["failure_type"] == "cuda_oom"


def test_the_page_diagnoses_a_job_and_keeps_it_under_its_number(failed, tmp_path):
    run = by_page((failed.folder,), "7")
    assert run.problem == ""
    shown = stored("show", run.incident, "--json")
    assert "cuda_oom" in json.dumps(shown)
    assert run.incident in json.dumps(stored("incidents", "--json", "--job", "7"))
    other = tmp_path / "other"
    other.mkdir()
    failed.states = []
    assert "Slurm knows no job 7" in by_page((other,), "7").problem
