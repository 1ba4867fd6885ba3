"""A store of its own for each test, on either database, and a clock that only moves when told."""

from dataclasses import dataclass

import pytest

from rerail.knowledge_base.store.engine import open_store
from rerail.settings import Settings


@dataclass
class FakeClock:
    now: float = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def settings(empty_store_url, tmp_path):
    return Settings(store_url=empty_store_url, data_dir=tmp_path / "data", cache_dir=tmp_path)


@pytest.fixture
def engine(settings):
    made = open_store(settings)
    yield made
    made.dispose()


@pytest.fixture
def clock():
    return FakeClock()
