"""A dataclass whose methods are made late is the same as one whose methods are made at once."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field, replace

import pytest

from rerail.late_dataclass import dataclass

KINDS = [
    {"frozen": frozen, "slots": slots, "eq": eq}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
]


def made(decorator, **kind):
    class Base:
        pass

    @decorator(**kind)
    class Point:
        """A point."""

        x: int
        names: list[str] = field(default_factory=list)
        y: float = 0.5
        secret: str = field(default="s", repr=False)
        seen: int = field(default=7, init=False, compare=False)

        @property
        def far(self):
            return self.x > 5

    return Point


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_does_what_the_standard_decorator_does(kind):
    late, plain = made(dataclass, **kind), made(dataclasses.dataclass, **kind)
    for build in (
        lambda c: c(1),
        lambda c: c(1, ["a"], 2.0),
        lambda c: c(x=1, secret="t"),
        lambda c: replace(c(1), y=3.0),
        lambda c: copy.deepcopy(c(1, ["b"])),
    ):
        one, other = build(late), build(plain)
        assert repr(one) == repr(other).replace("dataclasses", "late_dataclass")
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
        assert dataclasses.astuple(one) == dataclasses.astuple(other)
        assert (one == build(late)) is (other == build(plain))
        assert one != other and one != 3
    assert [f.name for f in dataclasses.fields(late)] == [f.name for f in dataclasses.fields(plain)]
    assert late.__match_args__ == plain.__match_args__ and late.__doc__ == plain.__doc__
    assert late(1).names is not late(1).names
    for wrong in (lambda c: c(), lambda c: c(1, 2, 3, 4, 5), lambda c: c(1, seen=3)):
        texts = []
        for cls in (late, plain):
            with pytest.raises(TypeError) as error:
                wrong(cls)
            texts.append(str(error.value))
        assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_setting_and_hashing_are_those_of_the_standard_decorator(kind):
    for act in (
        lambda one: setattr(one, "x", 3),
        lambda one: delattr(one, "x"),
        lambda one: setattr(one, "unknown", 3),
        lambda one: hash((one, 1)),
    ):
        ends = []
        for decorator in (dataclass, dataclasses.dataclass):
            one = made(decorator, **kind)(1, ())
            try:
                act(one)
                ends.append((None, one.__class__.__name__, getattr(one, "x", None)))
            except (AttributeError, TypeError) as error:
                # A class with slots tells a frozen one's unknown field in words of its own.
                ends.append(type(error) if kind["slots"] else (type(error), str(error)))
        assert ends[0] == ends[1] or (
            kind["frozen"]
            and kind["slots"]
            and all(issubclass(e, (AttributeError, TypeError)) for e in ends)
        )


def test_equal_ones_have_one_hash():
    late = made(dataclass, frozen=True)
    assert len({late(1, ()), late(1, ()), late(2, ())}) == 2


@dataclass(frozen=True, slots=True)
class Kept:
    name: str
    more: tuple[int, ...] = ()


@dataclass
class Checked:
    name: str

    def __post_init__(self):
        self.name = self.name.strip()


@dataclass
class Deeper(Checked):
    depth: int = 0

    def __post_init__(self):
        super().__post_init__()
        self.depth += 1


def test_records_travel_between_processes():
    assert pickle.loads(pickle.dumps(Kept("a", (1,)))) == Kept("a", (1,))


def test_what_follows_the_init_is_called_and_fields_are_inherited():
    assert Checked(" a ").name == "a"
    assert (Deeper(" b ", 2).name, Deeper(" b ", 2).depth) == ("b", 3)


def test_methods_are_made_when_they_are_first_needed():
    late = made(dataclass)
    before = late.__init__
    late(1)
    assert late.__init__ is not before
    after = late.__init__
    late(2)
    assert late.__init__ is after
