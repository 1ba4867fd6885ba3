"""A text that is not to be shown, as pydantic's SecretStr, without loading pydantic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class Secret:
    """A text that stands as asterisks wherever it is printed."""

    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        """Return the text itself."""
        return self._value

    def __str__(self) -> str:
        return "**********" if self._value else ""

    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let pydantic take a text, or a secret of either kind."""
        from pydantic import SecretStr
        from pydantic_core import core_schema

        def read(value: Any, inner: Any) -> Any:
            return value if isinstance(value, cls) else cls(inner(value).get_secret_value())

        return core_schema.no_info_wrap_validator_function(
            read,
            handler.generate_schema(SecretStr),
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )
