"""The scoring of endpoints: recorded answers of a fake, the rules beside them, a changed prompt told."""

import json
from pathlib import Path

import pytest

from rerail.errors import EvidenceError, UsageError
from rerail.evals.agent.command import agent_command
from rerail.evals.agent.recording import Forwarder, Tape, load_tape
from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import FakeModelServer, Reply

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
    assert model["claims"] > 0 and model["failed"] == 0
    # What is planted is false by construction: none of it may pass, and little of the true be lost.
    assert len(rules["planted"]) >= 10
    assert {passed for _, passed in rules["planted"].values()} == {0}
    for kind in ("cause", "rank", "order", "consequence"):
        asked, kept = rules["true_claims"].get(kind, (0, 0))
        assert kept == asked, kind
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


def pieces_of(answer, *, numbered=True):
    """Return a recorded completion as a server streams it, a few letters at a time."""
    message = answer["choices"][0]["message"]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    deltas = [{"role": "assistant", "content": None}]
    text = message.get("content") or ""
    deltas += [{"content": text[at : at + 5]} for at in range(0, len(text), 5)]
    for number, call in enumerate(message.get("tool_calls") or []):
        index = {"index": number} if numbered else {}
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        first = {"id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [{**index, **first}]})
        deltas += [
            {"tool_calls": [{**index, "function": {"arguments": arguments[at : at + 3]}}]}
            for at in range(0, len(arguments), 3)
        ]
    found = [{**head, "usage": None, "choices": [{"index": 0, "delta": d}]} for d in deltas]
    return [*found, {**head, "choices": [], "usage": answer["usage"]}]


def as_events(answer):
    rows = "".join(f"data: {json.dumps(piece)}\r\n\r\n" for piece in pieces_of(answer))
    return f": the server is busy\r\n\r\nevent: message\r\n{rows}data: [DONE]\r\n\r\n"


@pytest.mark.parametrize(
    "kept",
    [lambda answer: answer, as_events, pieces_of, lambda a: pieces_of(a, numbered=False)],
    ids=["object", "events", "pieces", "pieces without numbers"],
)
def test_a_recording_replays_in_whatever_form_its_bodies_were_kept(capsys, tmp_path, kept):
    def two_at_once(body):
        if not play.called(body):
            return Reply("Looking.", tools=[("overview", {}), ("grep", {"text": "error"})])
        return play.echo(body)

    tape = tmp_path / "tape.jsonl"
    with FakeModelServer(two_at_once) as server:
        live = run(capsys, url=server.url, record=tape)[1]
    head, *rows = [json.loads(row) for row in tape.read_text().splitlines()]
    assert len(rows) == live["calls"] >= 2 and live["type_right"] == 1
    for row in rows:
        row["body"] = kept(json.loads(row["body"]))
    tape.write_text("\n".join(json.dumps(row) for row in [head, *rows]) + "\n")
    again = run(capsys, replay=tape)[1]
    for key in ("type_right", "claims", "claims_held", "calls", "tokens", "failed"):
        assert again[key] == live[key], key


def test_a_stream_that_is_none_is_named(tmp_path):
    for body in ([1], "data: {broken\n\n", "data: 7\n\n"):
        row = {"case": "a", "iteration": 0, "turn": 0, "body": body}
        (tmp_path / "x.jsonl").write_text("{}\n" + json.dumps(row) + "\n")
        with pytest.raises(EvidenceError, match="not a recorded run"):
            load_tape(tmp_path / "x.jsonl")
