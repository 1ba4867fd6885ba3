"""What other programs get: MCP over its own client, SARIF for CI, frames for notebooks."""

import asyncio
import errno
import json
import os
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ToolAnnotations
from typer.testing import CliRunner

import rerail
from rerail.assistant.cli.main import app
from rerail.assistant.mcp_server import READ_ONLY, ReadOnlyServer, create_server
from rerail.settings import load_settings

DATA = Path(__file__).parents[1] / "data" / "faultlab"
JOB = DATA / "hang_one_rank"


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("RERAIL_DATA_DIR", str(tmp_path / "data"))
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_every_tool_says_with_all_hints_that_it_only_reads():
    async def listed():
        async with Client(create_server((DATA,)).server) as client:
            return (await client.list_tools()).tools

    tools = asyncio.run(listed())
    assert {t.name for t in tools} == {
        "diagnose", "incidents", "incident", "log_window", "rank_table", "series", "similar_incidents",
    }  # fmt: skip
    for tool in tools:
        hints = tool.annotations
        assert (hints.read_only_hint, hints.destructive_hint) == (True, False)
        assert hints.idempotent_hint is True and hints.open_world_hint is False
        assert tool.output_schema and tool.description and tool.title
        assert not {"approve", "execute", "reject"} & set(tool.name.split("_"))


@pytest.mark.parametrize("hints", [
    ToolAnnotations(), ToolAnnotations(read_only_hint=True), ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False),
])  # fmt: skip
def test_a_tool_that_does_not_say_so_is_refused(hints):
    def drain() -> None:
        """Drain."""

    with pytest.raises(ValueError, match="only reads"):
        ReadOnlyServer().add(drain, "Drain", hints)
    assert READ_ONLY.read_only_hint


def test_the_answers_are_those_of_the_terminal(tmp_path):
    told = json.loads(run("diagnose", "--json", JOB).stdout)

    async def asked():
        async with Client(create_server((DATA,)).server) as client:
            found = await client.call_tool("diagnose", {"paths": ["hang_one_rank"]})
            shown = await client.call_tool("incident", {"name": told["incident"]})
            lines = await client.call_tool(
                "log_window", {"name": "last", "file": "torchrun.log", "line": 39, "before": 0, "after": 1}
            )  # fmt: skip
            ranks = await client.call_tool("rank_table", {})
            outside = await client.call_tool("diagnose", {"paths": ["/etc/passwd"]})
            nobody = await client.call_tool("incident", {"name": "INC-nothing"})
            listed = await client.call_tool("incidents", {"since": "3650d"})
            return found, shown, lines, ranks, outside, nobody, listed

    found, shown, lines, ranks, outside, nobody, listed = asyncio.run(asked())
    assert found.structured_content["headline"] == told["headline"]
    assert shown.structured_content["verdict"]["headline"] == told["headline"]
    assert "Timed out waiting" in lines.structured_content["lines"][0]["text"]
    assert (
        ranks.structured_content["ranks"][0]["rank"] == 2 and ranks.structured_content["total"] == 4
    )
    assert outside.is_error and "not in a folder" in outside.content[0].text
    assert nobody.is_error and "Traceback" not in nobody.content[0].text
    assert [one["id"] for one in listed.structured_content["incidents"]] == [told["incident"]]


def test_it_speaks_over_standard_input_and_output(tmp_path):
    program = str(Path(sys.executable).with_name("rerail"))
    server = StdioServerParameters(
        command=program, args=["mcp", "--logs", str(DATA)],
        env={"RERAIL_DATA_DIR": str(tmp_path / "data"), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip

    async def asked():
        async with Client(server) as client:
            return await client.call_tool("diagnose", {"paths": ["hang_one_rank"]})

    found = asyncio.run(asked())
    assert found.structured_content["suspects"]["ranks"] == [2]


def test_sarif_holds_the_first_fault_and_nothing_for_a_good_run(tmp_path):
    out = tmp_path / "rerail.sarif"
    run("diagnose", "--no-store", "--sarif", out, JOB)
    log = json.loads(out.read_text())
    (result,) = log["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert log["version"] == "2.1.0" and result["ruleId"] == "nccl_timeout_unexplained"
    assert place["artifactLocation"]["uri"] == "torchrun.log" and place["region"]["startLine"] == 39
    assert result["message"]["text"].startswith("Rank 2 did not come")
    good = tmp_path / "good.log"
    good.write_text("".join(f"step {i} loss 2.{i}\n" for i in range(1, 60)) + "Training complete\n")
    run("diagnose", "--no-store", "--sarif", out, good)
    assert json.loads(out.read_text())["runs"][0]["results"] == []
    failed = run("diagnose", "--no-store", "--sarif", tmp_path / "no" / "x.sarif", JOB)
    assert failed.exit_code != 0 and "--sarif" in str(failed.exception)


def test_a_notebook_gets_frames_and_a_verdict_that_shows_itself():
    found = rerail.diagnose(JOB)
    assert "Rank 2 did not come to a collective" in repr(found)
    page = found._repr_html_()
    assert "<strong>Rank 2" in page and "<script" not in page
    assert list(found.ranks["rank"]) == [0, 1, 2, 3]
    assert found.ranks.set_index("rank").loc[2, "part"] == "suspect"
    assert {"loss", "step_time_s"} <= set(found.steps["series"])
    assert set(found.evidence["role"]) >= {"initiating"}
    assert len(rerail.incidents()) == 0  # nothing was kept
    run("diagnose", JOB)
    assert list(rerail.incidents()["failure_type"]) == ["nccl_timeout_unexplained"]
    assert rerail.incident().headline == found.headline
    with pytest.raises(AttributeError):
        _ = rerail.nothing


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, 74), (errno.EROFS, 74), (errno.ENOENT, 2)]
)
@pytest.mark.parametrize("option", ["--sarif", "--digest"])
def test_a_file_that_a_full_disk_keeps_from_being_written_ends_with_its_code(
    monkeypatch, tmp_path, option, number, code
):
    """A name that cannot be written is the caller's, a disk is not."""

    def refuse(path, content):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("rerail.assistant.cli.plot_file.write_file", refuse)
    failed = run("diagnose", "--no-store", option, tmp_path / "x.txt", JOB)
    assert failed.exception.exit_code == code
    assert option in failed.exception.message
