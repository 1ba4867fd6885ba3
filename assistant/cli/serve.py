"""`rerail serve`: the page, on this machine alone unless something tells who asks."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rerail.assistant.identity import login
from rerail.assistant.readable import readable_folders
from rerail.assistant.watch.log import say
from rerail.assistant.watch.receiver import Receiver, open_receiver
from rerail.errors import ConfigError, RecoveryError, UsageError
from rerail.knowledge_base.store.engine import data_folder
from rerail.recovery.safe_files import open_regular, read_whole
from rerail.settings import load_settings

if TYPE_CHECKING:
    from rerail.assistant.web.sign_in import Provider

_SHORTEST_TOKEN = 24


def serve_command(
    host: str,
    port: int,
    *,
    logs: list[Path],
    names: list[str],
    user_header: str,
    proxies: list[str],
    api_token_file: Path | None = None,
    oidc: str = "",
    oidc_client: str = "",
    oidc_secret_file: Path | None = None,
    oidc_claim: str = "email",
    url: str = "",
) -> int:
    """Serve until Ctrl-C; exit code 0.

    Raises:
        ConfigError: The page is not installed, or anybody could ask.
        UsageError: The address is taken, or a folder is not there.
    """
    try:
        import uvicorn

        from rerail.assistant.web.application import create_application
        from rerail.assistant.web.connections import BoundedConnection
        from rerail.assistant.web.guard import Access
        from rerail.assistant.web.sign_in import SignIn
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the page is not installed ({error.name} is missing)",
            subject="rerail serve",
            hint="pip install 'rerail[web]'",
        ) from None
    folders = readable_folders(logs)
    access = Access(
        host,
        port,
        tuple(name.lower() for name in (*names, *([urlsplit(url).hostname or ""] if url else []))),
        user_header.lower(),
        tuple(proxies),
        _token(api_token_file),
    )
    provider = _provider(oidc, oidc_client, oidc_secret_file, oidc_claim, url)
    application = create_application(
        access, login(), folders, _receiver(), None if provider is None else SignIn(provider)
    )
    listening = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    print(f"http://{shown}:{listening.getsockname()[1]}/   Ctrl-C ends it", flush=True)
    config = uvicorn.Config(
        application,
        http=BoundedConnection,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        print("rerail: stopped", file=sys.stderr)
    return 0


def _provider(
    issuer: str, client: str, secret_file: Path | None, claim: str, url: str
) -> Provider | None:
    """Return the provider at which people sign in, where one is named.

    Raises:
        ConfigError: Something of it is missing, not installed, or goes without TLS.
    """
    if not issuer:
        return None
    from importlib.util import find_spec

    from rerail.assistant.web.sign_in import Provider

    if not client or secret_file is None or not url:
        raise ConfigError(
            "--oidc needs --oidc-client, --oidc-secret-file and --url",
            subject="--oidc",
            hint="docs/page.md shows a whole command",
        )
    if find_spec("authlib") is None:
        raise ConfigError(
            "Authlib is not installed", subject="--oidc", hint="pip install 'rerail[oidc]'"
        )
    try:
        secret = read_whole(open_regular(secret_file.expanduser()), 4096).decode().strip()
    except (OSError, UnicodeDecodeError, RecoveryError) as error:
        raise UsageError(f"--oidc-secret-file {secret_file}: {error}", subject=str(secret_file)) from None  # fmt: skip
    provider = Provider(issuer, client, secret, url, claim)
    provider.check()
    return provider


def _receiver() -> Receiver | None:
    """Return what takes webhooks, where a secret for them is set."""
    settings = load_settings()
    if settings.webhook_secret_file is None:
        return None
    return open_receiver(settings.webhook_secret_file, data_folder(settings), settings.cluster, say)


def _token(path: Path | None) -> str:
    """Return the bearer token of programs; too short a one is refused."""
    if path is None:
        return ""
    try:
        token = read_whole(open_regular(path.expanduser()), 4096).decode().strip()
    except (OSError, UnicodeDecodeError, RecoveryError) as error:
        raise UsageError(f"--api-token-file {path}: {error}", subject=str(path)) from None
    if len(token) < _SHORTEST_TOKEN:
        raise UsageError(
            f"--api-token-file {path}: the token has fewer than {_SHORTEST_TOKEN} characters",
            subject=str(path),
            hint=f"openssl rand -hex 32 > {path}",
        )
    return token


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        raise UsageError(
            f"{host}:{port}: {error.strerror or error}",
            subject=f"{host}:{port}",
            hint="--port NUMBER; 0 takes a free one",
        ) from None
    return listening
