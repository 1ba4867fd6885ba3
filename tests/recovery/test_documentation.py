"""The pages name every key, and show what the program takes."""

import re
from pathlib import Path
from typing import get_args

import yaml
from pydantic import BaseModel

from rerail.domain.job import JobEvent
from rerail.domain.plan import ActionKind
from rerail.evals.cluster.setup_page import blocks, text_of
from rerail.recovery.clusters.slurm_rights import level_for
from rerail.recovery.site_policy import PolicyRule, SitePolicy
from rerail.tools.clusters.scheduler_answers import FILE as ANSWERS
from rerail.tools.clusters.scheduler_answers import meaning

DOCS = Path(__file__).parents[2] / "docs"


def keys(model, before=""):
    for name, field in model.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        models = [one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)]
        if models and name != "rules":
            yield from keys(models[0], f"{before}{name}.")
        elif name == "rules":
            yield from keys(PolicyRule, "rules[].")
        else:
            yield f"{before}{name}"


def test_the_policy_page_names_every_key_and_no_other():
    text = (DOCS / "policy.md").read_text(encoding="utf-8")
    table = text[: text.index("## An event")]
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    named = {one for row in rows for one in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
    assert named == set(keys(SitePolicy))
    assert all(len(row.split(" | ")) == 5 for row in rows), "meaning, unit, default and risk each"


def test_the_defaults_on_the_page_are_those_of_the_program():
    text = (DOCS / "policy.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `([\w.]+)` \| .*? \| .*? \| ([^|]*?) \|", text, re.M))
    for key in keys(SitePolicy):
        value = SitePolicy()
        if key.startswith("rules"):
            continue
        for part in key.split("."):
            value = getattr(value, part, None)  # a service that is not asked for has no defaults
        if isinstance(value, bool):
            assert shown[key] == str(value).lower(), key
        elif isinstance(value, (int, float)) and key in shown:
            assert float(shown[key]) == value, key


def test_the_event_on_the_page_is_taken_as_it_stands():
    text = (DOCS / "policy.md").read_text(encoding="utf-8")
    [whole] = re.findall(r"^`(\{.*?\})` is a whole event", text, re.M)
    assert JobEvent.model_validate_json(whole.replace('"time"', '"source": "hook", "time"'))
    for name in JobEvent.defaults:
        assert f"`{name}" in text, name


def test_the_set_up_page_has_every_part_and_its_policy_is_taken(tmp_path):
    assert {one.part for one in blocks()} == {"install", "setup", "slurm.conf", "verify"}
    [policy] = re.findall(r"<<'POLICY'\n(.*?)^POLICY$", text_of("setup"), re.M | re.S)
    site = SitePolicy.model_validate(yaml.safe_load(policy))
    assert site.dry_run and site.identities.writer and site.identities.job_user


def test_every_page_of_recovery_is_reached_from_the_readme():
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    for page in ("recovery.md", "setup_slurm.md", "security.md"):
        assert f"docs/{page}" in readme, page
    for page in ("setup_slurm.md", "policy.md", "security.md"):
        assert f"({page})" in (DOCS / "recovery.md").read_text(encoding="utf-8"), page


def test_each_answer_of_a_scheduler_is_shown_by_its_example():
    for one in yaml.safe_load(ANSWERS.read_text())["answers"]:
        assert one["source"] and meaning(one["example"]) == one["means"], one["text"]


def test_each_action_on_slurm_names_its_right():
    without = {ActionKind.NOTIFY, ActionKind.TICKET, ActionKind.MICRO_BATCHES}
    assert all(level_for(kind) for kind in ActionKind if kind not in without)
