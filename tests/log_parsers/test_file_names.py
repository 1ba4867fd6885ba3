"""Each form of a file's name says what it tells, shows an example, and is read by it."""

import re

import pytest

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import Stream
from rerail.log_parsers.file_names import PATH, origin_of

DATA = load_cached(PATH)
ENTRIES = [pytest.param(entry, id=entry["id"]) for key in ("kinds", "nodes") for entry in DATA[key]]


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_form_tells_of_its_examples_what_it_says(entry):
    assert entry["source"] and entry["matches"] and entry["must_not_match"]
    form = re.compile(entry["pattern"])
    for name, told in entry["matches"].items():
        assert form.search(name), name
        origin = origin_of(name)
        known = {"rank": origin.rank, "local": origin.local_rank, "attempt": origin.attempt}
        known |= {"node": origin.node, "pid": origin.pid}
        assert {key: value for key, value in known.items() if value is not None} == told
        assert origin.stream == (Stream(entry["stream"]) if "stream" in entry else None)
    assert not any(form.search(name) for name in entry["must_not_match"])
