"""Claims are taken one by one while an answer arrives, and none that is not in it."""

import json
import threading

import pytest

from rerail.assistant.agent.arriving import ClaimsInText
from rerail.assistant.agent.claims import Check
from rerail.assistant.agent.explain import explain
from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import FakeModelServer, Reply

CLAIMS = [
    {"kind": "quote", "subject": "L1", "relation": "says", "object": 'a "]} b', "lines": ["L1"]},
    "a bare sentence",
    {"text": "braces } ] and , inside"},
]
ANSWER = json.dumps({"summary": 'no "claims": [1] here', "claims": CLAIMS, "missing": ["x"]})


def taken(text, size):
    reader = ClaimsInText()
    return [c for at in range(0, len(text), size) for c in reader.feed(text[at : at + size])]


@pytest.mark.parametrize("size", [1, 2, 7, 24, 10_000])
@pytest.mark.parametrize("around", ["{}", "Sure:\n```json\n{}\n```", "<think>{{\"claims\": [1]}}</think>{}"])  # fmt: skip
def test_each_claim_once_whatever_the_pieces(size, around):
    assert taken(around.format(ANSWER), size) == CLAIMS


def test_a_claim_is_there_with_its_last_character_and_not_before():
    reader = ClaimsInText()
    end = ANSWER.index('}, "a bare')
    assert reader.feed(ANSWER[:end]) == [] and reader.feed(ANSWER[end : end + 1]) == CLAIMS[:1]


@pytest.mark.parametrize("text", ["", "words", '{"claims": "none"}', '{"claims": [}', '{"claims": []}', '{"claims": [' * 9000])  # fmt: skip
def test_what_is_no_list_of_claims_gives_none(text):
    assert taken(text, 100) == []


def two_claims(body):
    first = play.echo(body)
    answer = json.loads(first.text)
    handle = answer["first_fault"]
    answer["claims"].append(play.claim("quote", handle, "says", "out of memory"))
    answer["claims"].append({"text": "Delete the checkpoint folder.", "lines": [handle]})
    return json.dumps(answer)


@pytest.mark.parametrize("form", ["text", "tool", "schema"])
def test_claims_come_checked_and_are_those_of_the_explanation(facts, settings_for, form):
    def answers(body):
        text = two_claims(body)
        if form == "tool":
            return Reply(tools=[("Answer", json.loads(text))])
        return Reply(text)

    came = []
    with FakeModelServer(answers) as server:
        said = explain(facts, settings_for(server.url, model_answer=form), on_claim=came.append)
        assert server.requests[0]["stream"] is True
    assert said.stand == "agrees" and came == said.claims and len(came) == 3
    assert [c.check for c in came] == [Check.STRUCTURED, Check.QUOTED, Check.SUGGESTED]
    assert said.tokens_out > 0


def test_a_claim_comes_while_the_rest_is_still_written(facts, settings_for):
    go, came, first = threading.Event(), [], threading.Event()

    def held(body):
        return Reply(two_claims(body), hold_after="out of memory", go=go)

    def on_claim(claim):
        came.append(claim)
        first.set()

    with FakeModelServer(held) as server:
        answer = []
        asking = threading.Thread(
            target=lambda: answer.append(
                explain(facts, settings_for(server.url), on_claim=on_claim)
            )
        )
        asking.start()
        assert first.wait(60) and came[0].check is Check.STRUCTURED and not answer
        go.set()
        asking.join(60)
    assert answer[0].claims == came


def test_who_does_not_listen_gets_no_stream(facts, settings_for):
    with FakeModelServer(play.echo) as server:
        explain(facts, settings_for(server.url))
        assert not server.requests[0].get("stream")


@pytest.mark.parametrize("status", [400, 501])
def test_a_server_that_cannot_stream_is_asked_without_and_keeps_its_tools(
    facts, settings_for, status
):
    def cannot(body):
        return Reply(status=status) if body.get("stream") else play.looks_first(body)

    came = []
    with FakeModelServer(cannot) as server:
        said = explain(facts, settings_for(server.url), on_claim=came.append)
        assert "tools" in server.requests[1]
    assert said.stand == "agrees" and came == []


def test_odd_arguments_of_a_streamed_tool_call_end_nothing(facts, settings_for):
    def lists(body):
        if not play.called(body):
            return Reply(tools=[("grep", ["memory"])])
        return play.echo(body)

    with FakeModelServer(lists) as server:
        said = explain(facts, settings_for(server.url), on_claim=lambda claim: None)
        assert len(server.requests) == 2
    assert said.stand == "agrees"


def test_names_are_restored_in_claims_as_they_come(facts_from, settings_for):
    log = "srun: error: dgx-a12: task 0: Out Of Memory\n[rank0]: torch.OutOfMemoryError: CUDA out of memory on dgx-a12\n"
    facts = facts_from(log)

    def repeats(body):
        text = play.all_text(body)
        assert "dgx-a12" not in text
        hidden = text.split("CUDA out of memory on ")[1].split()[0]
        answer = json.loads(play.echo(body).text)
        handle = answer["first_fault"] or "L1"
        answer["claims"] = [play.claim("quote", handle, "says", f"memory on {hidden}")]
        return Reply(json.dumps(answer))

    came = []
    with FakeModelServer(repeats) as server:
        said = explain(facts, settings_for(server.url, model_hide_names=True), on_claim=came.append)
    assert came == said.claims and "memory on dgx-a12" in came[0].text, said
