"""`rerail chat`: the terminal around a chat session."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from rerail.assistant.chat.lines import Line
from rerail.assistant.chat.session import ChatSession
from rerail.assistant.explained import facts_for
from rerail.assistant.response import load_whole
from rerail.assistant.stored import opened_store, who
from rerail.errors import ConfigError
from rerail.knowledge_base.store.engine import reading
from rerail.settings import load_settings


def chat_command(incident: str, *, ask: str | None, no_model: bool) -> int:
    """Talk about an incident until the user leaves; with `ask`, answer one question."""
    settings = load_settings()
    if no_model:
        settings = settings.model_copy(update={"model": ""})
    out = Console(width=None if sys.stdout.isatty() else 120, soft_wrap=True, highlight=False)
    with opened_store() as engine:
        with reading(engine) as connection:
            file = load_whole(connection, incident)
        session = ChatSession(file, facts_for(file.incident), settings, engine, user=who(None))
        if ask is not None:
            _print(session.reply(ask), out)
            return 0
        _print(session.header(), out)
        for text in _inputs():
            if text.strip() in ("/quit", "/exit", "/q"):
                break
            try:
                _print(session.reply(text), out)
            except KeyboardInterrupt:
                out.print(Text("stopped; the session goes on", style="dim"))
    return 0


def _print(lines: Iterable[Line], out: Console) -> None:
    for line in lines:
        out.print(Text("  " + line.text, style=line.style))


def _inputs() -> Iterator[str]:
    """Yield what the user types; a pipe is read line by line."""
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory
    except ModuleNotFoundError:
        raise ConfigError(
            "the chat's input line is not installed",
            subject="prompt_toolkit",
            hint="pip install 'rerail[chat]', or pipe questions into rerail chat",
        ) from None
    prompt: PromptSession[str] = PromptSession(history=InMemoryHistory())
    while True:
        try:
            yield prompt.prompt("> ")
        except KeyboardInterrupt:
            continue  # an empty line, as in a shell
        except EOFError:
            return
