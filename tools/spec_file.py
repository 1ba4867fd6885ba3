"""A specification that a person wrote in YAML or JSON, read with errors that name file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rerail.errors import ConfigError


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
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "no YAML"
        raise ConfigError(f"{where}: {problem}", subject=str(path), hint=hint) from None
