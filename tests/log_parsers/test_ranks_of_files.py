"""How lines call their writer by a rank holds on its own examples."""

from __future__ import annotations

import pytest

from rerail.cached_yaml import load_cached
from rerail.log_parsers.ranks_of_files import PATH, patterns


@pytest.mark.parametrize("name", ["own", "named"])
def test_a_pattern_holds_on_its_examples(name: str) -> None:
    told = load_cached(PATH)[name]
    assert told["source"] and told["matches"] and told["must_not_match"]
    assert all(patterns()[name].search(text.encode()) for text in told["matches"])
    assert not any(patterns()[name].search(text.encode()) for text in told["must_not_match"])
