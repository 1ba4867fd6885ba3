"""YAML files read once and kept as JSON: parsing 10,000 lines of YAML costs a second, JSON 10 ms.

The cache holds nothing but what the file says; it is keyed by path, size and time of the file.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from rerail.errors import ConfigError, RuleError
from rerail.settings import Settings, load_settings


def cache_folder() -> Path:
    """Return the folder for compiled rules; it may not exist yet.

    Where a setting is wrong it is the default one: the message that says so is masked, and the patterns
    of secrets are compiled for that.
    """
    try:
        return load_settings().cache_dir.expanduser()
    except ConfigError:
        return Path(os.path.expanduser(Settings.defaults["cache_dir"]))


def write_whole(path: Path, data: bytes) -> bool:
    """Write a file of the cache; a full disk or a folder that can only be read leaves nothing behind."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        return False
    return True


@lru_cache(maxsize=256)
def load_cached(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        RuleError: when the file is missing or not valid YAML, naming file and line.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise RuleError(
            f"{path}: {error.strerror}", subject=str(path), hint="rerail kb lint"
        ) from None
    name = f"1|{os.path.realpath(path)}|{stat.st_size}|{stat.st_mtime_ns}"
    key = sha256(name.encode()).hexdigest()[:24]
    cached = cache_folder() / f"yaml-{key}.json"
    try:
        with open(cached, "rb") as file:
            return json.loads(file.read())
    except (OSError, ValueError):
        pass
    value = parse_yaml(path)
    with suppress(TypeError):  # keys that JSON has not: it costs time, not the diagnosis
        write_whole(cached, json.dumps(value).encode())
    return value


def parse_yaml(path: Path) -> Any:
    """Parse one YAML file without any cache.

    Raises:
        RuleError: when it cannot be read or is not valid YAML, naming file and line.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise RuleError(
            f"{where}: {getattr(error, 'problem', error)}", subject=str(path), hint="rerail kb lint"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise RuleError(f"{path}: {why}", subject=str(path), hint=f"ls -l {path}") from None
