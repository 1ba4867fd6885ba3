"""A specification that a person wrote in YAML or JSON, read with errors that name file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rerail.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)
_BRANCHES = ("constrained-", "tuple[")  # of a key that takes a number or a list


class WrongKey(ValueError):
    """What a whole spec is wrong in: the key, and why; raised by its validators."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


def check_spec(model: type[Model], content: Any, source: str, page: str) -> Model:
    """Return the content of a spec as a record; `page` says where its keys are described.

    Raises:
        ConfigError: a key is wrong; the message names it.
    """
    hint = f"see {page} for the keys of a spec"
    if not isinstance(content, dict):
        raise ConfigError(f"{source}: a spec is a mapping of keys", subject=source, hint=hint)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        parts = [str(part) for part in first["loc"]]
        key = ".".join(part for part in parts if not part.startswith(_BRANCHES)) or "spec"
        message = str(first["msg"]).removeprefix("Value error, ")
        if isinstance(cause, WrongKey):
            key, message = cause.key, str(cause)
        elif not isinstance(first["input"], dict | list):
            message = f"{message} (it is {first['input']!r})"
        raise ConfigError(f"{source}: {key}: {message}", subject=key, hint=hint) from None


def read_spec_file(path: Path, hint: str) -> Any:
    """Return the content of a YAML or JSON file; `hint` is the command to try.

    Raises:
        ConfigError: the file is missing, or is no YAML.
    """
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", subject=str(path), hint=hint) from None
    except RecursionError:
        raise ConfigError(
            f"{path}: its values are nested too deeply", subject=str(path), hint=hint
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "no YAML"
        raise ConfigError(f"{where}: {problem}", subject=str(path), hint=hint) from None
