"""`rerail chat`: the terminal around a chat session."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from rerail.assistant.agent.endpoint import load_client
from rerail.assistant.chat.lines import Line
from rerail.assistant.chat.session import ChatSession
from rerail.assistant.cli.working import Working, styled
from rerail.assistant.explained import facts_for
from rerail.assistant.response import load_whole
from rerail.assistant.stored import who
from rerail.errors import ConfigError
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.incidents import list_incidents
from rerail.knowledge_base.store.opened import opened_store
from rerail.settings import load_settings

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer


def chat_command(incident: str, *, ask: str | None, no_model: bool) -> int:
    """Talk about an incident until the user leaves; with `ask`, answer one question."""
    settings = load_settings()
    if no_model:
        settings = settings.model_copy(update={"model": ""})
    live = sys.stdout.isatty()
    # A terminal wraps at words; a pipe gets one line for each sentence, whatever its length.
    out = Console(width=None if live else 120, soft_wrap=not live, highlight=False)
    with opened_store() as engine:
        with reading(engine) as connection:
            file = load_whole(connection, incident)
            known = [row.id for row in list_incidents(connection, limit=200)]
        session = ChatSession(file, facts_for(file.incident), settings, engine, user=who(None))
        if session.has_model:
            _import_early()
        if ask is not None:
            _answer(session, ask, out)
            return 0
        _print(session.header(), out)
        for text in _inputs(session, known):
            if text.strip() in ("/quit", "/exit", "/q"):
                break
            try:
                _answer(session, text, out)
            except KeyboardInterrupt:
                _show(Line("stopped; the session goes on", "dim"), out)
    return 0


def _import_early() -> None:
    """Load the model's client while the user reads and types: it takes seconds."""
    threading.Thread(target=load_client, daemon=True, name="rerail-imports").start()


def _answer(session: ChatSession, text: str, out: Console) -> None:
    """Print an answer as it comes, above a line that says what is being done."""
    with Working(session.doing, enabled=session.has_model) as working:
        for line in session.reply(text):
            working.above(lambda line=line: _show(line, out))  # type: ignore[misc]


def _print(lines: Iterable[Line], out: Console) -> None:
    for line in lines:
        _show(line, out)


def _show(line: Line, out: Console) -> None:
    from rich.padding import Padding

    text = Text(line.text, style=line.style if styled() else "")
    if out.soft_wrap:
        out.print(Text("  ") + text)
    else:
        out.print(Padding(text, (0, 0, 0, 2), expand=False))


def _inputs(session: ChatSession, known: list[str]) -> Iterator[str]:
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
    prompt: PromptSession[str] = PromptSession(
        history=InMemoryHistory(), completer=completer(session, known)
    )
    while True:
        try:
            yield prompt.prompt("> ")
        except KeyboardInterrupt:
            continue  # an empty line, as in a shell
        except EOFError:
            return


def completer(session: ChatSession, known: list[str]) -> Completer:
    """Return what Tab completes: commands, incidents, files of the job, evidence, failure types."""
    from prompt_toolkit.completion import Completer, Completion

    from rerail.knowledge_base.taxonomy import leaves

    class Words(Completer):
        def get_completions(self, document, complete_event):  # type: ignore[no-untyped-def]
            line = document.text_before_cursor
            word = document.get_word_before_cursor(WORD=True)
            if line.startswith("/") and " " not in line:
                wanted = sorted(f"/{name}" for name in session.command_names())
            elif line.startswith("/export "):
                wanted = sorted(p.name for p in Path().glob(f"{word}*"))[:50] if word else []
            else:
                wanted = [*session.facts.lines.files(), *known]
                wanted += [e.id for e in session.file.diagnosis.evidence]
                wanted += list(leaves()) if line.startswith("/runbook") else []
            for one in wanted:
                if word and one.lower().startswith(word.lower()):
                    yield Completion(one, start_position=-len(word))

    return Words()
