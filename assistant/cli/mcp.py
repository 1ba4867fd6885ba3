"""`rerail mcp`: the read-only server for programs that speak the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

from rerail.assistant.readable import readable_folders
from rerail.errors import ConfigError


def mcp_command(logs: list[Path], http: int) -> int:
    """Serve over standard input and output, or HTTP on a loopback port; exit code 0.

    Raises:
        ConfigError: The SDK is not installed.
        UsageError: A folder is not there.
    """
    folders = readable_folders(logs)
    try:
        from rerail.assistant.locate.by_name import diagnose_for_others
        from rerail.assistant.mcp_server import create_server
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the MCP server is not installed ({error.name} is missing)",
            subject="rerail mcp",
            hint="pip install 'rerail[mcp]'",
        ) from None
    server = create_server(folders, diagnose_for_others).server
    if http:
        server.run("streamable-http", host="127.0.0.1", port=http)
    else:
        server.run("stdio")
    return 0
