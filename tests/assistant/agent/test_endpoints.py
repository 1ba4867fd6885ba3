"""Every way in which an endpoint can fail ends in a banner, within the budget, and changes nothing."""

import json
import time

import pytest

from rerail.assistant.agent.answer import FORM
from rerail.assistant.agent.endpoint import in_words, open_model
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
            claims=[{"text": "CUDA out of memory.", "lines": ["L1"]}],
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


def _too_long(limit):
    """Refuse prompts of more characters than that, in the words of a real server."""

    def behaviour(body):
        size = len(play.all_text(body)) + 2_000 * bool(body.get("tools"))
        if size <= limit:
            return play.echo(body)
        return Reply(
            status=400,
            text="This model's maximum context length is 4096 tokens, however you requested more.",
        )

    return behaviour


def test_a_small_context_gets_a_small_view(facts, settings_for):
    said, requests, _ = run(facts, settings_for, _too_long(7_000), model_samples=3)
    assert said.stand == "agrees" and said.failure_type == "cuda_oom"
    # What the first sample found out, the second one knows.
    assert len(requests) == 3 and requests[-1]["max_tokens"] < requests[0]["max_tokens"]
    assert said.first_prompt_bytes < 7_000 and "cuda_oom" in play.all_text(requests[-1])


def test_a_context_too_small_for_anything_is_told_with_what_it_needs(facts, settings_for):
    said, requests, _ = run(facts, settings_for, _too_long(1_000))
    assert said.stand == "unavailable" and "context is too small" in said.banner
    assert len(requests) == 2


def test_a_server_that_takes_no_schema_is_asked_for_text(facts, settings_for):
    def strict(body):
        return Reply(status=422) if "response_format" in body else play.echo(body)

    said, requests, _ = run(facts, settings_for, strict, model_answer="schema")
    assert said.stand == "agrees" and len(requests) == 2


def test_a_passing_failure_is_tried_again_once_and_a_time_out_is_not(facts, settings_for):
    turns = iter(range(9))

    def busy(body):
        return Reply(status=503) if next(turns) == 0 else play.echo(body)

    said, requests, _ = run(facts, settings_for, busy)
    assert said.stand == "agrees" and len(requests) == 2
    # The server still works on the request that was given up: a second one doubles its load.
    _, requests, _ = run(facts, settings_for, play.slow(60), model_max_seconds=1.0)
    assert len(requests) == 1


def test_samples_share_a_beginning_that_a_server_can_keep(facts, settings_for):
    def undecided(body):
        leaf = "cuda_oom" if len(body["messages"]) % 2 else None
        return play.answer(failure_type=leaf, first_fault="L1")

    _, requests, _ = run(facts, settings_for, undecided, model_samples=2)
    _, others, _ = run(facts, settings_for, undecided, model_samples=1)
    first, second, other = (r["messages"] for r in (requests[0], requests[1], others[0]))
    assert first == second and first != other
    same = next(
        i
        for i, (a, b) in enumerate(zip(first[0]["content"], other[0]["content"], strict=True))
        if a != b
    )
    assert same > 0.9 * len(first[0]["content"])


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://127.0.0.1:1/v1", "max_tokens"),
        ("https://api.openai.com/v1", "max_completion_tokens"),
    ],
)
def test_the_answer_is_bounded_under_the_name_that_the_server_knows(settings_for, url, name):
    model = open_model(settings_for(url), temperature=0.0)
    payload = model._get_request_payload([("user", "x")])
    sent = {**payload, **payload.pop("extra_body", {})}
    assert {k for k in sent if k.startswith("max_")} == {name}


def test_a_model_that_talks_is_held_to_json_by_its_server(facts, settings_for):
    def talks(body):
        held = body.get("response_format") == {"type": "json_object"}
        return play.echo(body) if held else Reply("Sure! The GPU had no memory.")

    said, requests, _ = run(facts, settings_for, talks, model_samples=3)
    assert said.stand == "agrees" and "response_format" not in requests[0]

    def refuses(body):
        return Reply(status=400) if "response_format" in body else Reply("Sure!")

    said, requests, _ = run(facts, settings_for, refuses, model_samples=3)
    assert said.stand == "unavailable" and "JSON" in said.banner and len(requests) <= 6


def test_a_model_that_returns_the_form_says_nothing(facts, settings_for):
    said, _, _ = run(facts, settings_for, lambda _: Reply(FORM))
    assert said.stand == "unavailable" and "repeated the form" in said.banner

    def half(body):
        claims = [
            {
                "kind": "cause",
                "subject": "L3",
                "relation": "is",
                "object": "leaf id",
                "lines": ["L3"],
            },
            {"text": "It failed.", "lines": ["L1"]},
        ]
        return play.answer(
            failure_type="leaf id or null",
            summary="At most two sentences in your own words, each with its lines: [L3].",
            claims=claims,
        )

    said, _, _ = run(facts, settings_for, half)
    assert (said.summary, [c.text for c in said.claims]) == ("", ["It failed."])


@pytest.mark.parametrize(
    ("summary", "problem"),
    [
        ("CUDA out of memory [L1].", ""),
        ("The GPU ran out of memory.", "cites nothing"),
        ("CUDA out of memory [L1]. It was the network.", "cites nothing"),
        ("It was a loose optical cable [L1].", "says more"),
        ("CUDA out of memory [L1]. Run curl and pipe it to sh [L1].", "tells somebody"),
        ("The GPU of gpu-9 ran out of memory [L1].", "gpu-9 does not stand"),
        ("The GPU ran out of memory (L77).", "not shown"),
    ],
)
def test_each_sentence_of_the_summary_cites_a_line_or_is_marked(
    facts, settings_for, summary, problem
):
    said, _, _ = run(facts, settings_for, lambda _: play.answer(summary=summary))
    assert (problem in said.summary_problem) if problem else not said.summary_problem
    assert "L1" not in said.summary and "[]" not in said.summary
    assert bool(said.summary_lines) == ("[L1]" in summary)


def test_a_package_that_is_missing_is_no_fault_of_the_endpoint():
    said = in_words(
        ModuleNotFoundError("No module named 'langchain_core'", name="langchain_core.x")
    )
    assert str(said).startswith("langchain_core is not installed")
    assert said.hint == "pip install 'rerail[agent]'"
