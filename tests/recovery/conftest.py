"""A store of its own for each test, on either database, and a clock that only moves when told."""

import itertools
from dataclasses import dataclass

import pytest
from sqlalchemy import text

from rerail.knowledge_base.store.engine import open_store
from rerail.settings import Settings

_numbers = itertools.count()


@dataclass
class FakeClock:
    now: float = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request, tmp_path):
    url = ""
    if request.param == "postgresql":
        base = request.getfixturevalue("postgres_url")
        schema = f"recovery_{next(_numbers)}"
        bare = open_store(Settings(store_url=base, data_dir=tmp_path), migrate=False)
        with bare.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {schema}"))
        bare.dispose()
        url = f"{base}&options=-csearch_path%3D{schema}"
    return Settings(store_url=url, data_dir=tmp_path / "data", cache_dir=tmp_path)


@pytest.fixture
def engine(settings):
    made = open_store(settings)
    yield made
    made.dispose()


@pytest.fixture
def clock():
    return FakeClock()
