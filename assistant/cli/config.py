"""`rerail config show`: every setting, its value and where it came from."""

from __future__ import annotations

import os

from rich.console import Console
from rich.table import Table


def show_command() -> int:
    """Print the settings in force."""
    from rerail.configured import from_file
    from rerail.log_parsers.redaction import redact
    from rerail.settings import Settings, load_settings

    settings = load_settings()
    file = from_file()[1] or None
    table = Table("setting", "value", "from")
    for name, default in Settings.defaults.items():
        value = getattr(settings, name)
        if f"RERAIL_{name.upper()}" in os.environ:
            origin = f"environment RERAIL_{name.upper()}"
        elif value != default:
            origin = file or "default"
        else:
            origin = "default"
        table.add_row(name, redact(str(value)), origin)
    Console().print(table)
    return 0
