"""A specification that a person wrote in YAML or JSON, read with errors that name file and line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from rerail.errors import ConfigError

if TYPE_CHECKING:
    import yaml

Model = TypeVar("Model", bound=BaseModel)
_BRANCHES = ("constrained-", "tuple[")  # of a key that takes a number or a list


class SpecPart(BaseModel):
    """One mapping of a spec: no keys but those that it declares, and no `true` where a number belongs."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        several = value if isinstance(value, list | tuple) else [value]
        wanted = cls.model_fields[str(info.field_name)].annotation
        if wanted is not bool and any(isinstance(one, bool) for one in several):
            raise ValueError("true and false are no values of this key")
        return value


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
        ConfigError: the file is missing, is no YAML, or says one key twice.
    """
    import yaml

    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        try:
            node = loader.get_single_node()
            _refuse_twice(node, path, hint)
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
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


def _refuse_twice(root: yaml.Node | None, path: Path, hint: str) -> None:
    """Refuse a mapping that says one key twice: YAML's reader would silently take the last."""
    import yaml

    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:  # an anchor that is used again
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        if not isinstance(node, yaml.MappingNode):
            continue
        lines: dict[str, int] = {}
        for key, value in node.value:
            waiting.append(value)
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                raise ConfigError(
                    f"{path}:{line}: {key.value} stands on line {lines[key.value]} already: keep one of the two",
                    subject=str(path), hint=hint,
                )  # fmt: skip
            lines[key.value] = line
