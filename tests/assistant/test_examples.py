"""What is ready to be dropped into other tools holds against the program as it is."""

import json
import re
import shlex
from pathlib import Path

import jinja2
import pytest
import yaml
from typer.testing import CliRunner

from rerail.assistant.cli.main import app

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def tools():
    content = yaml.safe_load((EXAMPLES / "holmesgpt" / "rerail.yaml").read_text())
    return content["toolsets"]["rerail"]["tools"]


@pytest.mark.parametrize("given", [
    "INC-x; rm -rf /", "$(id)", "`id`", "a b", "--help", "", "x" * 60, "a\nb", "a'b", "INC-1|cat", "{{7*7}}", "ä",
])  # fmt: skip
def test_no_odd_name_reaches_a_shell(given):
    for tool in tools():
        said = jinja2.Template(tool["command"]).render(incident=given)
        if "{{" in tool["command"]:
            assert shlex.split(said)[2] == "not-an-incident" and not set(said) & set(";|`$()'\n&<>")


@pytest.mark.parametrize("given", ["INC-oov5szunrj", "last"])
def test_a_name_of_ours_is_passed_on_and_the_commands_exist(given):
    for tool in tools():
        words = shlex.split(jinja2.Template(tool["command"]).render(incident=given))
        assert words[0] == "rerail"
        told = CliRunner().invoke(app, [words[1], "--help"]).stdout
        assert all(word in told for word in words[2:] if word.startswith("--"))
        assert given in words or "incident" not in tool["command"].replace("incidents", "")


def test_the_skill_is_short_and_names_commands_and_fields_that_exist():
    text = (EXAMPLES / "skill" / "SKILL.md").read_text()
    assert len(text.splitlines()) <= 60
    for command in re.findall(r"^rerail ([a-z]+(?: [a-z]+)?)", text, re.MULTILINE):
        words = command.split()
        found = CliRunner().invoke(app, [*(words if words[0] == "kb" else words[:1]), "--help"])
        assert found.exit_code == 0, command
    schema = json.loads((Path(__file__).parents[1] / "data" / "diagnosis_schema.json").read_text())
    for name in re.findall(r"^\| `([a-z_]+)", text, re.MULTILINE):
        assert name in schema["properties"], name


def test_the_dashboard_asks_for_metrics_that_are_there():
    from rerail.assistant.web import metrics

    source = Path(metrics.__file__).read_text()
    known = set(re.findall(r'"(rerail_[a-z_]+)"', source))
    board = json.loads((EXAMPLES / "grafana" / "rerail.json").read_text())
    asked = {
        name.removesuffix("_bucket")
        for panel in board["panels"] for target in panel["targets"]
        for name in re.findall(r"rerail_[a-z_]+", target["expr"])
    }  # fmt: skip
    assert asked == known


def test_the_ci_example_writes_what_it_uploads():
    steps = yaml.safe_load((EXAMPLES / "ci" / "rerail.yml").read_text())["jobs"]["train"]["steps"]
    assert any("--sarif rerail.sarif" in step.get("run", "") for step in steps)
    assert any(step.get("with", {}).get("sarif_file") == "rerail.sarif" for step in steps)


def bundled_lines():
    """The lines of the README that forecast and plan bundled specs, as printed."""
    readme = (EXAMPLES.parents[1] / "README.md").read_text()
    return re.findall(r"^rerail ((?:forecast|schedule-eval) docs/[^#\n]*?)\s*(?:#|$)", readme, re.M)


@pytest.mark.parametrize("line", bundled_lines())
def test_the_readme_s_forecast_and_plan_run_on_bundled_specs(line, monkeypatch):
    monkeypatch.chdir(EXAMPLES.parents[1])
    words = shlex.split(line)
    quick = ["--samples", "400", "--no-explain"] if words[0] == "forecast" else []
    found = CliRunner().invoke(app, [*words, *quick])
    assert found.exit_code == 0, found.output
    assert ("what if: parallel.dp=112" in found.output) == (words[0] == "forecast")


def test_the_help_s_what_if_is_that_of_the_readme():
    assert {line.split()[0] for line in bundled_lines()} == {"forecast", "schedule-eval"}
    told = CliRunner().invoke(app, ["forecast", "--help"]).stdout
    example = re.search(r"--set (\S+)", next(x for x in bundled_lines() if "--set" in x))[1]
    assert example in told
