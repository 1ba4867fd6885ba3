"""One chat about one incident: slash commands, canned questions, and a model where there is one.

Read-only: it reads the record and the logs, and writes nothing but the conversation and notes. A
request to act is answered with the command that would.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from rerail.assistant.agent.budget import Budget, budget_from
from rerail.assistant.agent.endpoint import Manner, configured, in_words, load_client
from rerail.assistant.agent.names import names_for
from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.agent_tools.shown import Shown
from rerail.assistant.agent_tools.tools import Tool, Toolbox
from rerail.assistant.chat.canned import find_question, why
from rerail.assistant.chat.cited import checked, sentences
from rerail.assistant.chat.from_record import from_record, telling
from rerail.assistant.chat.lines import Line
from rerail.assistant.chat.messages import Message, load_messages, save_message
from rerail.assistant.chat.model_turn import Turn, arriving, start
from rerail.assistant.response import load_whole
from rerail.domain.incident import EntrySource, TimelineEntry
from rerail.errors import ModelError, RerailError
from rerail.knowledge_base.store.alike import alike
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.incidents import IncidentFile, append
from rerail.recovery.safe_files import write_file
from rerail.settings import Settings

_ACT = re.compile(
    r"^(?:please |can you |could you |now |go and )*(?:drain|cancel|kill|restart|requeue|reboot|cordon|"
    r"resume|scancel|approve|undrain|exclude|reset|delete|run|execute|stop)\b",
    re.IGNORECASE,
)
_MOST_LOOSE = 4  # sentences of one answer that are printed though no line shows them
_REMEMBERED = 12  # messages of the conversation that a model sees again
HELP = (
    "why / what else / which ranks / what changed / seen before / what to do: answered from the record",
    "/evidence [E2]   the cited lines, or the log around one     /show N|L3   a tool's result, or a line",
    "/grep WORDS      lines that hold all words                  /ranks /series NAME /nodes /overview",
    "/similar         incidents of the same cause                /timeline    what happened, in order",
    "/runbook [TYPE]  the page of this or another failure type",
    "/note TEXT       put a note into the timeline               /export FILE the conversation",
    "/last            the last tool result   /context  what the model sees   /tools   what it may call",
    "/undo            forget the last question                   /quit",
)


@dataclass(slots=True)
class ChatSession:
    """A conversation; `reply` takes a line and yields what to print."""

    file: IncidentFile
    facts: JobFacts
    settings: Settings
    engine: Engine
    user: str = ""
    shown: Shown = field(default_factory=Shown)
    results: dict[int, tuple[str, str]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    tokens: int = 0
    manner: Manner = field(default_factory=Manner)
    _budget: Budget | None = None
    _at: str = ""

    def doing(self) -> str:
        """Say in a few words what is being done now, and what it has cost."""
        budget = self._budget
        if budget is None:
            return "looking into the record"
        cost = f", {budget.cost:.4f}" if budget.cost else ""
        return f"{self._at or f'asking {self.settings.model}'}  {budget.tokens} tokens{cost} "

    def __post_init__(self) -> None:
        with reading(self.engine) as connection:
            self.messages = load_messages(connection, self.file.row.id)

    @property
    def has_model(self) -> bool:
        """Tell whether free questions can be answered."""
        return configured(self.settings)

    def header(self) -> list[Line]:
        """Return the lines that open a session."""
        diagnosis = self.file.diagnosis
        model = (
            f"model: {self.settings.model}"
            if self.has_model
            else "no model: answers from the record"
        )
        lines = [
            Line(f"{self.file.row.id}   read-only   {model}   /help", "bold"),
            Line(
                f"{diagnosis.failure_type or 'no verdict'} {diagnosis.status}: {diagnosis.summary}"
            ),
        ]
        asked = sum(m.role == "user" for m in self.messages)
        if asked:
            lines.append(
                Line(
                    f"resumed: {asked} question{'s' * (asked != 1)} so far; /undo forgets the last",
                    "dim",
                )
            )
        return lines

    def reply(self, text: str) -> Iterator[Line]:
        """Answer one line of input. Never raises RerailError."""
        text = text.strip()
        if not text:
            return
        try:
            if text.startswith("/"):
                yield from self._command(text)
            elif _ACT.match(text):
                yield from self._remember(text, self._cannot_act())
            elif self.has_model:
                yield from self._ask(text)
            else:
                yield from self._remember(text, self._canned(text))
        except RerailError as error:
            yield Line(f"{error.message}" + (f"  try: {error.hint}" if error.hint else ""))

    # ------------------------------------------------------------- without a model

    def _cannot_act(self) -> list[Line]:
        name = self.file.row.id
        return [
            Line(
                f"Acting is not possible from chat. What would be done and why: rerail plan {name}"
            )
        ]

    def _canned(self, text: str) -> list[Line]:
        question = find_question(text)
        if question is None:
            return from_record(text, self.facts, lambda: self._known(text))
        return question(self.file, self._alike())

    def _known(self, text: str) -> list[tuple[str, str]]:
        """Return runbook pages and signed-off incidents that hold words of a question."""
        from rerail.knowledge_base.retrieval.knowledge import open_knowledge
        from rerail.knowledge_base.retrieval.search import Question

        asked = Question(" ".join(telling(text)), but=self.file.row.id)
        hits = open_knowledge(self.engine, self.settings).search(asked, most=2, how="lexical")
        return [
            (f"{h.document.id}", " ".join(h.document.text.split())) for h in hits if h.words >= 0.5
        ]

    def _alike(self) -> list[Any]:
        with reading(self.engine) as connection:
            return alike(connection, self.file.row)

    def _remember(self, text: str, lines: list[Line]) -> list[Line]:
        self._save("user", text)
        self._save("record", "\n".join(line.text for line in lines))
        return lines

    def _save(self, role: str, text: str, data: dict[str, Any] | None = None) -> None:
        message = Message(role, text, now_iso(), data or {})
        with writing(self.engine) as connection:
            save_message(connection, self.file.row.id, message)
        self.messages.append(message)

    # -------------------------------------------------------------------- commands

    def _command(self, text: str) -> list[Line]:
        name, _, rest = text[1:].partition(" ")
        rest = rest.strip()
        commands = self._commands()
        if name in commands:
            return commands[name](rest)
        tool = next((t for t in self._tools() if t.name == name), None)
        if tool is not None:
            return self._use(tool, rest)
        return [Line(f"/{name} is no command; /help lists them")]

    def command_names(self) -> list[str]:
        """Return the names of all commands, tools included, without the slash."""
        return [*self._commands(), *(t.name for t in self._tools()), "quit"]

    def _commands(self) -> dict[str, Callable[[str], list[Line]]]:
        return {
            "help": lambda _: [Line(row) for row in HELP],
            "evidence": self._evidence,
            "show": self._show,
            "last": lambda _: self._show(str(max(self.results, default=0))),
            "similar": lambda _: self._similar(),
            "timeline": lambda _: self._timeline(),
            "note": self._note,
            "context": lambda _: self._context(),
            "tools": lambda _: [Line(f"{t.name}: {t.about}") for t in self._tools()],
            "export": self._export,
            "undo": lambda _: self._undo(),
            "why": lambda _: why(self.file, ()),
        }

    def _use(self, tool: Tool, rest: str) -> list[Line]:
        first = next(iter(tool.arguments), None)
        if tool.name == "runbook" and not rest:
            rest = self.file.row.true_type or ""
        if first is not None and not rest:
            return [Line(f"/{tool.name} needs {first}: {tool.arguments[first][1]}")]
        began = time.monotonic()
        result = tool.call(**({first: rest} if first is not None else {}))
        number = self._keep_result(tool.name, rest, result)
        head = f"* {tool.name}({rest})  {len(result)} bytes  {time.monotonic() - began:.1f} s  [{number}]"
        return [Line(head, "dim"), *self._result_lines(result)]

    def _result_lines(self, result: str) -> list[Line]:
        marks = (self.shown.opening, self.shown.closing)
        return [Line(row) for row in result.splitlines() if row.strip() not in marks]

    def _keep_result(self, name: str, arguments: str, result: str) -> int:
        number = len(self.results) + 1
        self.results[number] = (f"{name}({arguments})", result)
        return number

    def _evidence(self, name: str) -> list[Line]:
        evidence = self.file.diagnosis.evidence
        if not name:
            return [Line(f"{e.id:<4}{e.file}:{e.line}  {e.role}  {e.text[:160]}") for e in evidence]
        found = next((e for e in evidence if e.id.lower() == name.lower()), None)
        if found is None:
            return [Line(f"there is no {name}; /evidence lists them")]
        return self._window(found.file, found.line, found.text)

    def _window(self, file: str, number: int, text: str = "") -> list[Line]:
        lines = self.facts.lines.around(file, number, 8, 8)
        rows = [
            Line(f"{'>' if x.number == number else ' '}{x.number:>7}  {x.text[:300]}", "bold" if x.number == number else "")
            for x in lines
        ]  # fmt: skip
        if not any(x.number == number for x in lines) and text:
            rows.append(Line(f">{number:>7}  {text[:300]}", "bold"))
        return [Line(file, "dim"), *rows]

    def _show(self, name: str) -> list[Line]:
        line = self.shown.find(name)
        if line is not None:
            return self._window(line.file, line.number, line.text)
        if name.isdigit() and int(name) in self.results:
            call, result = self.results[int(name)]
            return [Line(f"[{name}] {call}", "bold"), *self._result_lines(result)]
        known = f"1 to {len(self.results)}" if self.results else "none yet"
        return [Line(f"there is no result {name or '?'} ({known}) and no line of that name")]

    def _similar(self) -> list[Line]:
        from rerail.assistant.chat.canned import seen_before

        return seen_before(self.file, self._alike())

    def _timeline(self) -> list[Line]:
        # Read anew: notes were added here, and recovery may have gone on.
        with reading(self.engine) as connection:
            self.file = load_whole(connection, self.file.row.id)
        return [
            Line(
                f"{e.time[:23].replace('T', ' ').rstrip('Z')}  {e.source} {e.kind}: {e.text[:200]}"
            )
            for e in self.file.timeline
        ]

    def _note(self, text: str) -> list[Line]:
        if not text:
            return [Line("/note needs the text of the note")]
        entry = TimelineEntry(
            time=now_iso(), source=EntrySource.HUMAN, kind="note", text=text[:2000], actor=self.user
        )
        with writing(self.engine) as connection:
            append(connection, self.file.row.id, entry)
        self._save("note", text[:2000])
        lines = [Line("noted in the timeline; a note guides, it is no evidence")]
        if self.file.row.signed_off_at:
            lines.append(Line("it stands behind the sign-off: others find it once that is renewed"))
        return lines

    def _context(self) -> list[Line]:
        remembered = self.messages[-_REMEMBERED:]
        size = sum(len(m.text) for m in remembered)
        return [
            Line(f"{len(self.shown.handles())} lines shown, {self.shown.log_bytes} bytes of log"),
            Line(f"{len(remembered)} of {len(self.messages)} messages remembered, {size} bytes"),
            Line(
                f"{self.tokens} tokens spent; {self.settings.model_max_tokens} a question at most"
            ),
        ]

    def _export(self, name: str) -> list[Line]:
        if not name:
            return [Line("/export needs a file name")]
        path = Path(name).expanduser()
        body = "\n\n".join(f"{m.time[:19]} {m.role}: {m.text}" for m in self.messages)
        try:
            write_file(path, f"chat about {self.file.row.id}\n\n{body}\n".encode())
        except OSError as error:
            return [Line(f"{path}: {error.strerror}")]
        return [Line(f"written to {path}")]

    def _undo(self) -> list[Line]:
        for at in range(len(self.messages) - 1, -1, -1):
            if self.messages[at].role == "user":
                with writing(self.engine) as connection:
                    undone = Message("undo", "", now_iso(), {})
                    save_message(connection, self.file.row.id, undone)
                forgotten = self.messages[at].text
                del self.messages[at:]
                return [Line(f"forgotten: {forgotten[:80]}")]
        return [Line("there is nothing to forget")]

    # --------------------------------------------------------------- with a model

    def _tools(self) -> list[Tool]:
        return Toolbox(self.facts, self.shown).tools()

    def _numbered(self, say: Callable[[Line], None]) -> list[Tool]:
        """Return the tools with their results numbered, so that an answer can cite them."""

        def wrap(tool: Tool) -> Tool:
            def call(**arguments: Any) -> str:
                began = time.monotonic()
                self._at = f"* {tool.name}"
                result = tool.call(**arguments)
                self._at = ""
                inside = ", ".join(f"{v}" for v in arguments.values() if v not in ("", 10))
                number = self._keep_result(tool.name, inside, result)
                took = time.monotonic() - began
                say(
                    Line(
                        f"* {tool.name}({inside[:80]})  {len(result)} bytes  {took:.1f} s  [{number}]",
                        "dim",
                    )
                )
                return f"result [{number}]\n{result}"

            return Tool(tool.name, tool.about, tool.arguments, call)

        return [wrap(tool) for tool in self._tools()]

    def _ask(self, text: str) -> Iterator[Line]:
        """Stream an answer sentence by sentence; each is checked before it is printed."""
        earlier = self.messages[-_REMEMBERED:]
        self._save("user", text)
        said: list[str] = []
        try:
            for line in self._stream(text, earlier):
                said.append(line.text)
                yield line
        except (KeyboardInterrupt, GeneratorExit):
            said.append("(stopped)")
            raise
        except Exception as error:  # every client has errors of its own
            problem = error if isinstance(error, RerailError) else in_words(error)
            yield Line(f"model unavailable: {problem.message}; from the record:", "bold")
            lines = self._canned(text) if find_question(text) else why(self.file, self._alike())
            said += [line.text for line in lines]
            yield from lines
        finally:
            self._save("assistant", "\n".join(said), {"model": self.settings.model})

    def _stream(self, text: str, earlier: list[Message]) -> Iterator[Line]:
        self._at = "loading the model's client"
        self._budget = budget_from(self.settings)
        load_client()
        budget = self._budget = budget_from(self.settings)
        self._at = ""
        names = names_for(self.settings, self.facts)
        turn = Turn(
            self.facts, self.shown, self.settings, self.manner, budget, text, _turns(earlier), names
        )
        arrived = start(turn, self._numbered)
        marks: list[Line] = []
        held = loose = 0
        for sentence in sentences(arriving(arrived, budget, marks)):
            yield from marks
            marks.clear()
            if names is not None:
                sentence = names.restore(sentence)
            line = checked(sentence, self.shown, {n: r for n, (_, r) in self.results.items()})
            held, loose = held + (not line.style), loose + bool(line.style)
            if not line.style or loose <= _MOST_LOOSE:
                yield line
        yield from marks
        self._spent(budget)
        if loose > _MOST_LOOSE:
            yield Line(f"({loose - _MOST_LOOSE} more unverified sentences are left out)", "dim")
        if not held and not loose:
            raise ModelError("the model gave no answer", subject="answer", hint="ask again")
        if not held:
            yield Line("No line shows any of this; from the record:", "bold")
            yield from self._canned(text) if find_question(text) else why(self.file, self._alike())

    def _spent(self, budget: Budget) -> None:
        self.tokens += budget.tokens
        self._budget = None


def _turns(messages: list[Message]) -> list[tuple[str, str]]:
    roles = {"user": "user", "assistant": "assistant", "record": "assistant"}
    turns = []
    for message in messages:
        if message.role in roles:
            # What did not hold is not repeated to the model, or it would build on it.
            rows = [r for r in message.text.splitlines() if not r.startswith("unverified: ")]
            turns.append((roles[message.role], "\n".join(rows)[:1500] or "(nothing that holds)"))
        elif message.role == "note":
            turns.append(
                ("user", f"Note of the engineer (guidance, no evidence): {message.text[:500]}")
            )
    return turns
