"""The scoring of endpoints: recorded answers of a fake, the rules beside them, a changed prompt told."""

import json
from pathlib import Path

import pytest

from rerail.errors import EvidenceError, UsageError
from rerail.evals.agent.command import agent_command
from rerail.evals.agent.recording import Forwarder, Tape, load_tape
from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import FakeModelServer

DATA = Path(__file__).parents[2] / "data"
TAPE = DATA / "agent" / "fake-keywords.jsonl"
DEFAULTS = {
    "url": "", "name": "fake", "cases": None, "recorded": DATA / "faultlab", "only": ["sigkill"],
    "most": None, "iterations": 1, "blind": False, "record": None, "replay": None, "json_output": True,
}  # fmt: skip


def run(capsys, **changes):
    assert agent_command(**{**DEFAULTS, **changes}) == 0
    return json.loads(capsys.readouterr().out)


def test_a_recorded_run_is_scored_without_an_endpoint(capsys):
    rules, model = run(capsys, replay=TAPE, only=["port_in_use", "disk_full_named"])
    assert rules["cases"] == 2 and rules["type_right"] == 2 and rules["tokens"] == 0
    # The fake knows "No space left" and nothing of ports.
    assert model["cases"] == 4 and model["type_right"] == 2 and model["same"] == model["compared"]
    assert model["claims"] == model["claims_held"] > 0 and model["failed"] == 0
    assert max(model["prompt_log_bytes"]) <= 12_000


def test_what_is_recorded_plays_back_to_the_same_scores(capsys, tmp_path):
    with FakeModelServer(play.looks_first) as server:
        live = run(capsys, url=server.url, record=tmp_path / "tape.jsonl")
    again = run(capsys, replay=tmp_path / "tape.jsonl")
    for key in ("type_right", "claims_held", "calls", "tokens", "failed"):
        assert live[1][key] == again[1][key]
    assert live[1]["type_right"] == 1


def test_an_endpoint_that_fails_is_counted_not_hidden(capsys):
    with FakeModelServer(play.status(500)) as server:
        _, model = run(capsys, url=server.url)
    assert (model["failed"], model["type_right"]) == (1, 0)


def test_bad_input_has_a_hint(tmp_path):
    (tmp_path / "x.jsonl").write_text("{}\nnope\n")
    with pytest.raises(EvidenceError):
        load_tape(tmp_path / "x.jsonl")
    with pytest.raises(UsageError):
        agent_command(**DEFAULTS)
    with pytest.raises(UsageError):
        agent_command(**{**DEFAULTS, "recorded": None})


def test_an_absent_upstream_is_a_502_on_the_tape():
    tape = Tape({})
    tape.seek("a", 0)
    assert Forwarder(tape, "http://127.0.0.1:9/v1", "k", seconds=5.0).forward({}).status == 502
    assert tape.answers == {("a", 0, 0): (502, "")}
