"""Programs that call the server: OpenAI's own client, Prometheus, and a fuzzer of the JSON answers."""

import openai
import pytest
import schemathesis
from prometheus_client.parser import text_string_to_metric_families

from tests.assistant.web.conftest import TOKEN


@pytest.fixture
def client(served):
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=TOKEN, max_retries=0)


def test_any_chat_client_talks_to_the_assistant(client, served):
    assert [one.id for one in client.models.list()] == ["rerail"]
    asked = [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": f"{served.hang}: which ranks?"},
    ]
    whole = client.chat.completions.create(model="rerail", messages=asked)
    text = whole.choices[0].message.content
    assert "Held responsible: rank 2" in text and whole.choices[0].finish_reason == "stop"
    pieces = client.chat.completions.create(model="rerail", messages=asked, stream=True)
    streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert streamed.split() == text.split()


def test_nobody_talks_without_the_token(served):
    for key in ("wrong", TOKEN[:-1]):
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=0).models.list()
    with served.client() as client:
        assert client.get("/v1/models").status_code == 401
        assert client.get("/metrics", headers={"authorization": "Bearer x"}).status_code == 401


def test_a_wrong_request_is_told_in_words(client):
    with pytest.raises(openai.BadRequestError, match="no message of a user"):
        client.chat.completions.create(
            model="rerail", messages=[{"role": "system", "content": "x"}]
        )
    with pytest.raises(openai.APIStatusError):
        client.chat.completions.create(
            model="rerail", messages=[{"role": "user", "content": "INC-zzzzzz why?"}]
        )


def test_prometheus_reads_what_is_on_record(served):
    with served.client() as client:
        text = client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).text
        assert client.get("/metrics").text.count("rerail_incidents") == text.count(
            "rerail_incidents"
        )
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(found) == {
        "rerail_incidents", "rerail_diagnosis_seconds", "rerail_queue", "rerail_plan_steps", "rerail_breaker_open",
        "rerail_budget_left", "rerail_notices_untold",
    }  # fmt: skip
    left = {s.labels["budget"]: s.value for s in found["rerail_budget_left"].samples}
    assert left == {
        "nodes_per_hour": 3,
        "actions_in_window": 20,
    }  # the policy's, and nothing was done
    kinds = {s.labels["failure_type"]: s.value for s in found["rerail_incidents"].samples}
    assert kinds["nccl_timeout_unexplained"] >= 1
    count = next(s for s in found["rerail_diagnosis_seconds"].samples if s.name.endswith("_count"))
    assert count.value >= 3


@pytest.mark.slow
def test_the_json_answers_hold_against_a_fuzzer(served):
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    tried = 0
    for result in schema.include(path_regex="^/api").get_all_operations():
        operation = result.ok()
        tried += 1
        case_strategy = operation.as_strategy()

        from hypothesis import HealthCheck, given, settings

        @settings(
            max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(case=case_strategy)
        def holds(case):
            answer = case.call(base_url=served.url)
            assert answer.status_code < 500, (case, answer.text)

        holds()
    assert tried == 7
