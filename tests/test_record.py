"""Records are checked and written as pydantic's models of the same fields are."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, ValidationError

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.record import make_incident
from rerail.domain import diagnosis, incident, job
from rerail.domain.diagnosis import Action, Diagnosis, Evidence, GpuRef, Recovery, Suspects
from rerail.domain.incident import Incident, SeriesSnapshot, Snapshot
from rerail.domain.job import Allocation, JobEvent, JobRef, NodeShare
from rerail.domain.record import Record, _model
from rerail.domain.secret import Secret
from rerail.settings import Settings

RECORDED = Path(__file__).parent / "data" / "faultlab"


def kinds() -> Iterator[type[Record]]:
    for module in (diagnosis, incident, job):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Record) and value is not Record:
                yield value


@pytest.fixture(scope="module", params=["hang_one_rank", "exit_code"])
def recorded(request) -> Incident:
    folder = RECORDED / request.param
    return make_incident(diagnose_paths([folder]), [folder])


def test_a_recorded_incident_is_written_as_pydantic_writes_it(recorded):
    text = recorded.model_dump_json()
    assert json.loads(text) == json.loads(
        _model(Incident).model_validate_json(text).model_dump_json()
    )
    assert recorded.model_dump(mode="json") == json.loads(text)
    lines = recorded.diagnosis.model_dump_json(indent=2).splitlines()
    assert lines[:2] == ["{", '  "schema_version": 1,'] and lines[-1] == "}"


def test_a_recorded_incident_comes_back_as_it_was(recorded):
    assert Incident.model_validate_json(recorded.model_dump_json()) == recorded
    assert Incident.model_validate(recorded.model_dump(mode="json")) == recorded
    assert Incident.model_validate(recorded.model_dump()) == recorded
    assert Incident.model_validate(recorded) is recorded
    assert pickle.loads(pickle.dumps(recorded)) == recorded == copy.deepcopy(recorded)


@pytest.mark.parametrize("kind", list(kinds()), ids=lambda kind: kind.__name__)
def test_every_record_has_the_fields_and_defaults_of_its_model(kind):
    fields = _model(kind).model_fields
    assert list(fields) == list(kind.defaults)
    for name, field in fields.items():
        assert field.is_required() or field.default == kind.defaults[name]


VALUES = st.sampled_from([
    None, True, 0, 1, -1, 2.5, 3.0, float("nan"), float("inf"), "", "a", "7", "rules", "page_human", "failure", "right",
    [], [1, 2], (1,), ["a"], ["1"], [None], {}, {"a": 1}, {"node": "n"}, {1: 2}, 1 << 60, b"a", Action.PAGE_HUMAN,
    [GpuRef(gpu=1)], [{"gpu": "x"}], Suspects(), Allocation(), (NodeShare(node="n"),), JobRef(job="1"), {"job": "1"}, object,
    ((1, 2),), ((1, 2, 3),), (1.0, None),
])  # fmt: skip


def outcome(make, values):
    try:
        return make(values)
    except ValidationError as error:
        return [(one["type"], one["loc"], one["msg"]) for one in error.errors()]


@given(data=st.data())
def test_whatever_is_given_is_taken_or_refused_as_pydantic_does(data):
    kind = data.draw(st.sampled_from(sorted(kinds(), key=lambda one: one.__name__)))
    names = [*kind.defaults, "unknown"]
    values = data.draw(st.dictionaries(st.sampled_from(names), VALUES))
    made = outcome(lambda given: vars(kind(**given)), values)
    expected = outcome(lambda given: vars(_model(kind).model_validate(given)), values)
    if isinstance(made, dict) and isinstance(expected, dict):
        assert repr(made) == repr(expected)
        assert [type(one) for one in made.values()] == [type(one) for one in expected.values()]
    else:
        assert made == expected


def test_numbers_that_json_has_not_are_null():
    series = SeriesSnapshot(name="loss", step=(1,), value=(float("nan"),))
    assert json.loads(series.model_dump_json())["value"] == [None]
    odd = JobEvent(
        job=JobRef(job="1"), source="s", state="F", time="t", extra={"a": float("inf"), "b": {1, 2}}
    )
    assert json.loads(odd.model_dump_json())["extra"] == {"a": None, "b": [1, 2]}


def test_a_default_is_not_shared():
    one, other = Suspects(), Suspects()
    one.ranks.append(3)
    assert other.ranks == []


def test_a_record_is_frozen_and_knows_itself():
    one = Evidence(id="e1", file="a", line=1, text="x", role="context")
    with pytest.raises(AttributeError, match="frozen"):
        one.line = 2
    assert one == one.model_copy() != one.model_copy(update={"line": 2})
    assert repr(GpuRef(gpu=1)) == "GpuRef(node=None, gpu=1)"
    assert len({GpuRef(gpu=1), GpuRef(gpu=1), GpuRef(gpu=2)}) == 2


class Holder(BaseModel):
    """A model that others have, with records in it."""

    recovery: Recovery
    allocation: Allocation = Allocation()


def test_a_record_is_a_field_of_models():
    held = Holder.model_validate({"recovery": {"action": "page_human"}})
    assert held.recovery == Recovery(action=Action.PAGE_HUMAN)
    assert Holder(recovery=held.recovery).recovery is held.recovery
    assert Holder.model_validate_json(held.model_dump_json()) == held
    assert held.model_dump()["allocation"] == {"nodes": (), "world_size": None}
    with pytest.raises(ValidationError, match=r"recovery\.action"):
        Holder.model_validate({"recovery": {"action": "x"}})
    for mode in ("validation", "serialization"):
        schema = Holder.model_json_schema(mode=mode)
        assert schema["$defs"]["Recovery"]["properties"]["action"] == {"$ref": "#/$defs/Action"}


def test_a_secret_is_not_shown():
    for key in ("k", SecretStr("k"), Secret("k")):
        settings = Settings(model_key=key)
        assert settings.model_key.get_secret_value() == "k" and settings.model_key == Secret("k")
        assert "'k'" not in repr(settings) and str(settings.model_key) == "**********"
    assert str(Secret("")) == ""


def test_what_is_left_out_is_left_out():
    assert "elapsed_s" not in Snapshot().model_dump(exclude={"elapsed_s"})
    assert set(GpuRef(gpu=1).model_dump(exclude_none=True)) == {"gpu"}
    assert Diagnosis.model_json_schema()["additionalProperties"] is False
