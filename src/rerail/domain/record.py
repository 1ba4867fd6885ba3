"""Records that are checked and written as pydantic's models are, and load pydantic only where they need it.

Loading pydantic and building its models took a third of a small diagnosis, which makes a dozen records
out of values that are plainly of the right types. A record whose values are not so plain, one that is
read back, and the JSON schema are pydantic's work.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    dataclass_transform,
    get_type_hints,
)

from rerail.domain.plain_values import NotPlainError, Take, taker

if TYPE_CHECKING:
    from pydantic import BaseModel, GetCoreSchemaHandler
    from pydantic_core import CoreSchema

R = TypeVar("R", bound="Record")
REQUIRED: Any = object()
"""Stands for the default of a field that has none."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """A frozen record with named fields; the methods are those of pydantic's models, with their names."""

    defaults: ClassVar[dict[str, Any]] = {}
    """The fields in their order, each with its default or REQUIRED."""

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        # The annotations are texts here, as every module asks for.
        named = own.get("__annotations__", {})
        cls.defaults = cls.defaults | {
            name: own.get(name, REQUIRED)
            for name, kind in named.items()
            if not str(kind).startswith("ClassVar")
        }

    def __init__(self, **given: Any) -> None:
        """Take the values.

        Raises:
            pydantic.ValidationError: A value is not of its type, a field is missing or unknown.
        """
        try:
            values = _plain(type(self), given)
        except NotPlainError:
            values = vars(_model(type(self)).model_validate(given))
        self.__dict__.update(values)

    @classmethod
    def model_validate(cls, content: Any) -> Self:
        """Return the record of a mapping, or a record as it is.

        Raises:
            pydantic.ValidationError: It is no such record.
        """
        if isinstance(content, cls):
            return content
        if type(content) is dict and all(type(key) is str for key in content):
            return cls(**content)
        return _of(cls, _model(cls).model_validate(content))

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """Return the record of a JSON text.

        Raises:
            pydantic.ValidationError: It is no such record.
        """
        return _of(cls, _model(cls).model_validate_json(text))

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema."""
        return _model(cls).model_json_schema()

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Return a copy with some fields replaced; what replaces them is not checked."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, **(update or {}))
        return made

    def model_dump(
        self,
        *,
        mode: Literal["json", "python"] = "python",
        exclude: Collection[str] = (),
        exclude_none: bool = False,
    ) -> dict[str, Any]:
        """Return the fields as a mapping; with mode `json` of what JSON has."""
        write = _written if mode == "json" else _unpacked
        return {
            name: write(value, exclude_none)
            for name, value in self.__dict__.items()
            if name not in exclude and not (exclude_none and value is None)
        }

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the record as a JSON text; what is no number there is null."""
        return json.dumps(
            _finite(self.model_dump(mode="json")),
            ensure_ascii=False,
            indent=indent,
            separators=(",", ":") if indent is None else None,
            allow_nan=False,
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let a record be a field of pydantic's models."""
        from pydantic_core import core_schema

        def read(value: Any, inner: Any) -> Any:
            return value if isinstance(value, cls) else _of(cls, inner(value))

        def write(record: Record, info: Any) -> dict[str, Any]:
            return record.model_dump(mode=info.mode, exclude_none=info.exclude_none)

        return core_schema.no_info_wrap_validator_function(
            read,
            handler.generate_schema(_model(cls)),
            serialization=core_schema.plain_serializer_function_ser_schema(write, info_arg=True),
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen, {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen, {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({shown})"


def _plain(cls: type[Record], given: dict[str, Any]) -> dict[str, Any]:
    if not given.keys() <= cls.defaults.keys():
        raise NotPlainError
    # Defaults are taken as they stand; most of those that are records are made while modules are loaded.
    takers, values = _takers(cls) if given else {}, {}
    for name, default in cls.defaults.items():
        if name in given:
            values[name] = takers[name](given[name])
        elif default is REQUIRED:
            raise NotPlainError
        else:
            values[name] = default.copy() if isinstance(default, list | dict) else default
    return values


_TAKERS: dict[type[Record], dict[str, Take]] = {}
_MODELS: dict[type[Record], type[BaseModel]] = {}


def _takers(cls: type[Record]) -> dict[str, Take]:
    found = _TAKERS.get(cls)
    if found is None:
        hints = get_type_hints(cls, include_extras=True)
        found = _TAKERS[cls] = {name: taker(hints[name]) for name in cls.defaults}
    return found


def _model(cls: type[Record]) -> type[BaseModel]:
    """Return pydantic's model of the same fields."""
    found = _MODELS.get(cls)
    if found is None:
        from pydantic import ConfigDict, create_model

        hints = get_type_hints(cls, include_extras=True)
        fields: dict[str, Any] = {
            name: (hints[name], ... if default is REQUIRED else default)
            for name, default in cls.defaults.items()
        }
        found = _MODELS[cls] = create_model(
            cls.__name__,
            __config__=ConfigDict(extra="forbid", frozen=True, protected_namespaces=()),
            __doc__=cls.__doc__,
            __module__=cls.__module__,
            **fields,
        )
    return found


def _of(cls: type[R], model: BaseModel) -> R:
    made = object.__new__(cls)
    made.__dict__.update(model.__dict__)
    return made


def _written(value: Any, exclude_none: bool) -> Any:
    """Return what stands for a value in JSON."""
    kind = type(value)
    if kind in _JSON:
        return value
    if kind is list or kind is tuple:
        return [_written(one, exclude_none) for one in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: _written(one, exclude_none) for key, one in value.items()}
    if isinstance(value, Record):
        return value.model_dump(mode="json", exclude_none=exclude_none)
    if isinstance(value, Enum):
        return _written(value.value, exclude_none)
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, exclude_none=exclude_none)


_JSON = frozenset({str, int, float, bool, type(None)})


def _unpacked(value: Any, exclude_none: bool) -> Any:
    """Return a value with the records in it as mappings."""
    if isinstance(value, Record):
        return value.model_dump(exclude_none=exclude_none)
    if type(value) in (list, tuple):
        return type(value)(_unpacked(one, exclude_none) for one in value)
    if type(value) is dict:
        return {key: _unpacked(one, exclude_none) for key, one in value.items()}
    return value


def _finite(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is list:
        return [_finite(one) for one in value]
    if kind is dict:
        return {key: _finite(one) for key, one in value.items()}
    return value
