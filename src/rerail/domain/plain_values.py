"""Values that are plainly of the type of their field are taken as they are; of others pydantic has the word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from rerail.domain.secret import Secret

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

Take = Callable[[Any], Any]
_EXACT_FLOAT = 1 << 53


class NotPlainError(Exception):
    """Whether a value can stand for its type is not seen at a glance."""


class AtLeast:
    """Says of an annotated whole number what it is at least."""

    def __init__(self, least: int) -> None:
        self.least = least

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Tell pydantic the same."""
        from pydantic_core import core_schema

        return core_schema.int_schema(ge=self.least)


def taker(annotation: Any) -> Take:
    """Return the function that takes plain values of a type, and raises NotPlainError for all others."""
    if annotation is Any:
        return _as_it_is
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _any_of([taker(one) for one in arguments], _plain_types(annotation))
    if origin is Literal:
        return _literal(arguments)
    if origin is list or origin is tuple:
        return _row(origin, arguments)
    if origin is dict:
        return _mapping(*arguments)
    if origin is Annotated:
        return _at_least(arguments[1])
    return _scalar(annotation)


def _plain_types(annotation: Any) -> frozenset[type]:
    """Return the types of which every value is taken as it is."""
    if get_origin(annotation) in (Union, UnionType):
        return frozenset().union(*(_plain_types(one) for one in get_args(annotation)))
    return frozenset({annotation} if annotation in _AS_THEY_ARE else ())


_AS_THEY_ARE = (str, int, float, bool, NoneType)


def _as_it_is(value: Any) -> Any:
    return value


def _scalar(wanted: type) -> Take:
    def take(value: Any) -> Any:
        if type(value) is wanted:
            return value
        if type(value) is str and (wanted is Path or issubclass(wanted, (Enum, Secret))):
            try:
                return wanted(value)
            except ValueError:
                raise NotPlainError from None
        if wanted is float and type(value) is int and -_EXACT_FLOAT < value < _EXACT_FLOAT:
            return float(value)
        # Of records there are no kinds, of paths there are.
        if wanted not in _AS_THEY_ARE and isinstance(value, wanted):
            return value
        raise NotPlainError

    return take


def _any_of(takers: Sequence[Take], plain: frozenset[type]) -> Take:
    def take(value: Any) -> Any:
        if type(value) in plain:
            return value
        for one in takers:
            try:
                return one(value)
            except NotPlainError:
                continue
        raise NotPlainError

    return take


def _literal(allowed: Sequence[Any]) -> Take:
    def take(value: Any) -> Any:
        if type(value) in (str, int) and any(
            type(value) is type(a) and value == a for a in allowed
        ):
            return value
        raise NotPlainError

    return take


def _row(origin: type, arguments: Sequence[Any]) -> Take:
    each = len(arguments) == 1 or arguments[1] is Ellipsis
    plain = _plain_types(arguments[0]) if each else frozenset()
    takers = [taker(one) for one in arguments if one is not Ellipsis]

    def take(value: Any) -> Any:
        if type(value) not in (list, tuple):
            raise NotPlainError
        if each:
            if plain.issuperset(map(type, value)):
                return origin(value)
            return origin(map(takers[0], value))
        if len(value) != len(takers):
            raise NotPlainError
        return origin(one(part) for one, part in zip(takers, value, strict=True))

    return take


def _mapping(keys: Any, values: Any) -> Take:
    take_key, take_value = taker(keys), taker(values)

    def take(value: Any) -> Any:
        if type(value) is not dict:
            raise NotPlainError
        return {take_key(key): take_value(one) for key, one in value.items()}

    return take


def _at_least(limit: AtLeast) -> Take:
    def take(value: Any) -> Any:
        if type(value) is int and value >= limit.least:
            return value
        raise NotPlainError

    return take
