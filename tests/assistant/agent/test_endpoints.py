"""Every way in which an endpoint can fail ends in a banner, within the budget, and changes nothing."""

import json
import time

import pytest

from rerail.assistant.agent.explain import explain
from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import FakeModelServer, Reply


def run(facts, settings_for, behaviour, **changes):
    with FakeModelServer(behaviour) as server:
        began = time.monotonic()
        said = explain(facts, settings_for(server.url, **changes))
        return said, server.requests, time.monotonic() - began


def test_an_honest_model_agrees_and_its_claims_hold(facts, settings_for):
    said, requests, _ = run(facts, settings_for, play.looks_first, model_samples=3)
    assert said.stand == "agrees" and said.failure_type == "cuda_oom" and not said.banner
    assert str(said.status) == str(facts.incident.diagnosis.status)
    assert said.claims[0].lines and not said.claims[0].problem
    # Two samples agree: the third could not change the vote and is not asked.
    assert (said.votes, said.samples, said.calls, len(requests)) == (2, 2, 6, 6)
    assert said.tokens_in > 0 and said.first_prompt_log_bytes <= 12_000


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (play.status(429), "429"),
        (play.status(500), "status 500"),
        (play.status(401), "key"),
        (play.status(404), "404"),
        (play.malformed, "not the JSON"),
        (play.garbage, "cannot be read"),
        (play.empty, "cannot be read"),
        (lambda _: Reply(""), "not the JSON"),
        (lambda _: Reply('{"claims": "none"}'), "wrong claims"),
        (lambda _: Reply('{"summary": 7}'), "wrong summary"),
        (play.endless, "tool"),
    ],
)
def test_a_broken_endpoint_ends_in_a_banner(facts, settings_for, behaviour, words):
    said, requests, _ = run(facts, settings_for, behaviour)
    assert said.stand == "unavailable" and words in said.banner
    assert len(requests) <= 9


@pytest.mark.parametrize("behaviour", [play.slow(60), play.dripping(0.05)])
def test_a_slow_endpoint_costs_no_more_than_its_seconds(facts, settings_for, behaviour):
    said, _, seconds = run(facts, settings_for, behaviour, model_max_seconds=1.5)
    assert said.stand == "unavailable" and "1" in said.banner and seconds < 8


def test_an_absent_endpoint(facts, settings_for):
    said = explain(facts, settings_for("http://127.0.0.1:9/v1"))
    assert said.stand == "unavailable" and "cannot be reached" in said.banner


def test_an_invented_tool_is_refused_and_the_run_goes_on(facts, settings_for):
    said, requests, _ = run(facts, settings_for, play.invented)
    assert said.stand == "agrees"
    answers = [m["content"] for m in requests[-1]["messages"] if m["role"] == "tool"]
    assert "not a valid tool" in answers[0]


def test_a_liar_changes_nothing_and_is_marked(facts, settings_for):
    said, _, _ = run(facts, settings_for, play.lies, model_samples=3)
    assert said.stand == "abstains" and said.failure_type is None and said.first_fault is None
    assert [c.problem for c in said.claims] == [
        "cites a line that was not shown",
        "sw-12 does not stand in the cited lines",
        "cites nothing",
    ]
    assert "not shown" in said.problems[0]


def test_a_model_that_objects_is_shown_and_capped(facts, settings_for):
    def objects(body):
        return play.answer(
            failure_type="disk_full_or_quota", first_fault="L1", summary="No.",
            claims=[{"text": "The disk was full.", "lines": ["L1"]}],
        )  # fmt: skip

    said, _, _ = run(facts, settings_for, objects)
    assert (said.stand, str(said.status)) == ("disagrees", "hypothesis")


def test_samples_vote_on_type_and_line_not_on_words(facts, settings_for):
    turns = iter(range(100))

    def fickle(body):
        turn = next(turns)
        leaf = "disk_full_or_quota" if turn == 0 else "cuda_oom"
        return play.answer(failure_type=leaf, first_fault="L1", summary=f"words {turn}")

    said, _, _ = run(facts, settings_for, fickle, model_samples=3)
    assert (said.failure_type, said.votes, said.samples) == ("cuda_oom", 2, 3)


def test_the_token_budget_ends_the_run(facts, settings_for):
    said, requests, _ = run(facts, settings_for, play.endless, model_max_tokens=6_000)
    assert said.stand == "unavailable" and len(requests) <= 3


def test_a_server_without_usage_is_counted_by_size(facts, settings_for):
    def quiet(body):
        return Reply(play.echo(body).text, usage=False)

    said, _, _ = run(facts, settings_for, quiet, model_price_in=1.0, model_price_out=1.0)
    assert said.tokens_in > 500 and said.cost > 0


@pytest.mark.parametrize("form", ["text", "tool", "schema"])
def test_each_form_of_answer(facts, settings_for, form):
    def behaviour(body):
        reply = play.echo(body)
        if form == "tool":
            return Reply(tools=[("Answer", json.loads(reply.text))])
        return reply

    said, requests, _ = run(facts, settings_for, behaviour, model_answer=form)
    assert said.stand == "agrees"
    assert ("response_format" in requests[0]) == (form == "schema")


@pytest.mark.parametrize("lacks", ["tools", "temperature"])
def test_a_server_that_lacks_something_still_explains(facts, settings_for, lacks):
    def strict(body):
        return Reply(status=400) if body.get(lacks) is not None else play.echo(body)

    said, requests, _ = run(facts, settings_for, strict)
    assert said.stand == "agrees" and lacks in requests[0] and lacks not in requests[-1]
