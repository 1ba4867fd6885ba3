"""A diagnosed job, and settings that point to the fake model."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.agent_tools.lines import ViewSource
from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.record import make_incident
from rerail.settings import Settings

LOG = (
    "".join(
        f"[rank{r}]: step {s} loss 3.{s} step_time 0.5s\n" for s in range(1, 30) for r in (0, 1)
    )
    + "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/job/train.py", line 9, in <module>\n'
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.11 GiB\n"
    "[rank0]: RuntimeError: Connection closed by peer [10.0.0.7]:4711\n"
)


@pytest.fixture
def facts_from(job):
    def build(texts) -> JobFacts:
        folder = job(texts)
        outcome = diagnose_paths([folder])
        return JobFacts(make_incident(outcome, [folder]), ViewSource(outcome.case.views))

    return build


@pytest.fixture
def facts(facts_from) -> JobFacts:
    return facts_from(LOG)


@pytest.fixture
def settings_for():
    def build(url: str, **changes) -> Settings:
        return Settings(
            **{
                "model_url": url,
                "model": "fake",
                "model_key": SecretStr("k"),
                "model_samples": 1,
                "model_max_seconds": 60.0,
                **changes,
            }
        )

    return build
