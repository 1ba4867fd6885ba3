"""What was configured, as it was written: the environment over `rerail.toml`. Light: no checks here.

`rerail.settings` checks names and kinds; a hook that a scheduler waits for reads two values here.
"""

from __future__ import annotations

import os

from rerail.errors import ConfigError

CONFIG_FILES = ("rerail.toml", "~/.config/rerail/rerail.toml")
DATA_DIR = "~/.local/share/rerail"
CLUSTER = "local"


def from_file() -> tuple[dict[str, object], str]:
    """Return what the first configuration file says, and its name; nothing where there is none.

    Raises:
        ConfigError: It is no TOML.
    """
    for candidate in CONFIG_FILES:
        path = os.path.expanduser(candidate)
        if os.path.isfile(path):
            import tomllib

            try:
                with open(path, "rb") as file:
                    return tomllib.load(file), candidate
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
                raise ConfigError(
                    f"{candidate}: {error}", subject=candidate, hint=f"edit {candidate}"
                ) from None
    return {}, ""


def without_home() -> dict[str, str]:
    """Return folders that nobody can make, for an account without a home: what would lie there is not kept."""
    if os.path.expanduser("~") != "~":
        return {}
    nowhere = os.path.join(os.devnull, "no-home", "rerail")
    return {"cache_dir": nowhere, "data_dir": nowhere}


def from_environment(keys: tuple[str, ...]) -> dict[str, str]:
    """Return the values of `RERAIL_<KEY>` for those keys that are set, in capitals or not."""
    variables = {name.upper(): value for name, value in os.environ.items()}
    names = {key: f"RERAIL_{key.upper()}" for key in keys}
    return {key: variables[name] for key, name in names.items() if name in variables}


def value_of(key: str, default: str) -> str:
    """Return one configured text.

    Raises:
        ConfigError: The configuration file is no TOML.
    """
    given = from_environment((key,))
    return str(given[key] if key in given else from_file()[0].get(key, default))
