"""Patterns that are compiled late are valid, and behave as those that are compiled at once."""

from __future__ import annotations

import importlib
import pkgutil
import re

import rerail.knowledge_base
import rerail.log_parsers
from rerail.lazy_patterns import LazyPattern, lazy


def test_every_late_pattern_of_the_packages_compiles() -> None:
    found = 0
    for package in (rerail.log_parsers, rerail.knowledge_base):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "__main__" in info.name or ".migrations." in info.name:
                continue
            for value in vars(importlib.import_module(info.name)).values():
                if isinstance(value, LazyPattern):
                    assert value.groups >= 0, value.pattern
                    found += 1
    assert found > 80


def test_a_late_pattern_does_what_a_pattern_does() -> None:
    late, pattern = lazy(r"(?P<n>\d+)x", re.IGNORECASE), re.compile(r"(?P<n>\d+)x", re.IGNORECASE)
    assert late.pattern == pattern.pattern and late.flags == pattern.flags
    for _ in range(2):
        assert late.sub("y", "12X 3") == "y 3"
        assert [m["n"] for m in late.finditer("12X 3x")] == ["12", "3"]
        assert late.fullmatch("x") is None
