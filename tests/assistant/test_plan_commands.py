"""Deciding on a plan from the terminal: what is asked, what the exit code says, what comes after expiry."""

import json

import pytest
from typer.testing import CliRunner

from rerail.assistant.cli.main import app
from rerail.errors import RecoveryError
from rerail.settings import load_settings

POLICY = "default_mode: propose\napprovals: {expires_s: %s}\njobs: {group_wait_s: 0}\n"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site without a scheduler that heard of one killed job."""
    (tmp_path / "train.log").write_text("srun: error: gpu-7: task 1: Killed\n")
    monkeypatch.setenv("RERAIL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("RERAIL_POLICY_FILE", str(tmp_path / "policy.yaml"))
    event = {"job": {"job": "7"}, "state": "FAILED", "logs": [str(tmp_path / "train.log")]}

    def heard(expires_s):
        (tmp_path / "policy.yaml").write_text(POLICY % expires_s)
        (tmp_path / "event.json").write_text(json.dumps(event))
        run("hook", str(tmp_path / "event.json"))
        run("watch", "--once")
        return json.loads(run("plan", "--json").stdout)

    load_settings.cache_clear()
    yield heard
    load_settings.cache_clear()


def run(*arguments, typed=""):
    return CliRunner().invoke(app, list(arguments), input=typed)


def test_after_expiry_the_next_command_makes_a_new_plan(site):
    old = site(0.001)
    late = run("approve", old["id"], "--step", "1", "--target", "7")
    assert late.exit_code == 1
    assert f"rerail plan {old['incident']} --again" in late.stdout
    made = json.loads(run("plan", old["incident"], "--again", "--json").stdout)
    assert made["id"] != old["id"] and made["incident"] == old["incident"]
    assert made["actions"][0]["kind"] == old["actions"][0]["kind"]


def test_what_was_rejected_is_no_success_for_a_script(site):
    plan = site(600)
    assert run("reject", plan["id"]).exit_code == 0
    assert run("approve", plan["id"], "--step", "1", "--target", "7").exit_code == 1


def test_the_card_says_how_long_it_holds_and_what_is_true_now(site):
    plan = site(600)
    shown = run("approve", plan["id"], "--step", "1").stdout
    for word in ("expires", "risk      low", "checked   no scheduler", "rule default"):
        assert word in shown


def test_plan_decision_and_dry_run_say_the_same_of_a_step(site):
    plan = site(600)
    shown = run("plan", plan["id"]).stdout
    lines = {" ".join(line.split()) for line in shown.split("\n\n")[1].splitlines()[2:]}
    assert {line.split()[0] for line in lines} == {
        "exactly", "touches", "because", "risk", "budget", "checked", "verified",
    }  # fmt: skip
    for asked in (("approve", plan["id"], "--step", "1"), ("approve", plan["id"], "--dry-run")):
        told = {" ".join(line.split()) for line in run(*asked).stdout.splitlines()}
        # The preconditions are replaced by what they say now.
        assert {line for line in lines if not line.startswith("checked")} <= told


def test_a_new_plan_closes_the_old_one_and_waits_for_what_is_under_way(site):
    old = site(600)
    run("plan", old["id"], "--again")
    states = json.loads(run("plan", old["id"], "--json").stdout)["states"]
    assert states[0]["state"] == "expired"
    new = json.loads(run("plan", "--json").stdout)
    run("approve", new["id"], "--step", "1", "--target", "7")  # dry run: approved, not begun
    refused = run("plan", new["id"], "--again")
    assert isinstance(refused.exception, RecoveryError) and "approved" in str(refused.exception)


def test_nobody_approves_under_the_name_of_another(site, tmp_path, monkeypatch):
    plan = site(600)
    (tmp_path / "policy.yaml").write_text(
        (POLICY % 600).replace("{expires_s", "{approvers: [ann], expires_s")
    )
    monkeypatch.setenv("USER", "ann")
    monkeypatch.setenv("LOGNAME", "ann")
    asked = ("approve", plan["id"], "--step", "1", "--target", "7")
    for more in ((), ("--by", "ann")):
        assert isinstance(run(*asked, *more).exception, RecoveryError)
    assert json.loads(run("plan", "--json").stdout)["states"][0]["state"] == "proposed"


def test_a_dry_run_shows_the_whole_card_keeps_it_on_the_timeline_and_does_nothing(site):
    plan = site(600)
    (asked, *_) = plan["states"]
    assert asked["touches"].startswith("not known") and asked["budget"].endswith("breaker closed")
    shown = run("approve", plan["id"], "--step", "1", "--dry-run")
    assert shown.exit_code == 1  # nobody could carry it out here
    for word in (
        "touches   not known",
        "undo: cancel",
        "budget    restart 1 of 20",
        "nothing was done",
    ):
        assert word in shown.stdout
    assert json.loads(run("plan", "--json").stdout)["states"][0]["state"] == "proposed"
    entries = run("timeline", plan["incident"], "--json").stdout
    assert '"dry_run"' in entries and "no cluster adapter" in entries
    ready = json.loads(run("policy", "readiness", "--json").stdout)
    (rule,) = ready["rules"]
    assert (rule["rule"], rule["plans"], rule["open"], rule["ready"]) == ("default", 1, 1, False)


def test_nobody_rejects_or_closes_the_breaker_under_another_name(site, tmp_path, monkeypatch):
    plan = site(600)
    monkeypatch.setattr("rerail.assistant.identity.login", lambda: "bob")
    close = ("breaker", "close", "looked at it")
    # Closing the breaker lets everything act again: the login counts, whoever may approve.
    refused = run(*close, "--by", "ann")
    assert isinstance(refused.exception, RecoveryError) and "login of bob" in str(refused.exception)
    (tmp_path / "policy.yaml").write_text(
        (POLICY % 600).replace("{expires_s", "{approvers: [ann], expires_s")
    )
    for asked in (("reject", plan["id"], "--by", "ann"), ("reject", plan["id"]), close):
        refused = run(*asked)
        assert isinstance(refused.exception, RecoveryError), asked
    assert json.loads(run("plan", "--json").stdout)["states"][0]["state"] == "proposed"
    monkeypatch.setattr("rerail.assistant.identity.login", lambda: "ann")
    assert run(*close).exit_code == 0 and run("reject", plan["id"]).exit_code == 0
    assert json.loads(run("plan", "--json").stdout)["states"][0]["state"] == "rejected"
