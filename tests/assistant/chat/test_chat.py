"""Chat: cited sentences, commands, no way to act, a session that survives, with and without a model."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rerail.assistant.agent.budget import budget_from
from rerail.assistant.agent_tools.facts import facts_of
from rerail.assistant.agent_tools.shown import Shown
from rerail.assistant.chat.cited import checked, sentences
from rerail.assistant.chat.session import ChatSession
from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.record import make_incident
from rerail.domain.incident import SnapshotLine
from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import FakeModelServer, Reply
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.incidents import load, record
from rerail.settings import Settings

LOG = (
    "[rank0]: step 1 loss 2.0\n[rank1]: step 1 loss 2.0\n"
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
)


@pytest.fixture
def chat(job, tmp_path):
    engine = open_store(Settings(data_dir=tmp_path / "data"))
    folder = job(LOG)
    incident = make_incident(diagnose_paths([folder]), [folder])
    with writing(engine) as connection:
        record(connection, incident)

    def begin(url="", **changes):
        with reading(engine) as connection:
            file = load(connection, incident.id)
        settings = Settings(
            model_url=url, model="fake" if url else "", model_max_seconds=60, **changes
        )
        return ChatSession(file, facts_of(file.incident), settings, engine, user="ann")

    yield begin
    engine.dispose()


def say(session, text):
    return [(line.style, line.text) for line in session.reply(text)]


def texts(session, text):
    return "\n".join(line.text for line in session.reply(text))


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("why?", "out of memory"),
        ("why not the network", "no rival cause"),
        ("what else could it be", "no rival cause"),
        ("which ranks did it?", "Held responsible: rank 1."),
        ("what changed", "no change is visible"),
        ("have we seen this before?", "Unseen"),
        ("how much did it cost us", "does not tell"),
        ("what should I do now", "reduce memory, then restart"),
        ("hmm the widget", "No line of this job holds"),
    ],
)
def test_canned_questions_are_answered_from_the_record(chat, question, words):
    assert words in texts(chat(), question)


def test_a_verdict_that_stayed_did_not_change(chat):
    session = chat()
    first = next(e for e in session.file.timeline if e.kind == "diagnosed")
    again = first.model_copy(update={"kind": "diagnosed_again"})
    other = again.model_copy(update={"text": "host_oom_kill supported: killed"})
    for entries, told in (((first, again), False), ((first, again, other), True)):
        session.file = replace(session.file, timeline=entries)
        assert ("verdict changed" in texts(session, "what changed")) is told


def test_what_fails_on_every_rank_is_not_called_quiet(job):
    same = "".join(
        f"[rank{r}]: ModuleNotFoundError: No module named 'flash_attn'\n" for r in range(4)
    )
    folder = job(same)
    parts = [r.part for r in make_incident(diagnose_paths([folder]), [folder]).snapshot.ranks]
    assert len(parts) == 4 and not {"quiet", "consequence"} & set(parts)


@pytest.mark.parametrize(
    "text", ["drain gpu-1", "please restart it", "Can you cancel the job?", "now kill it"]
)
def test_acting_is_not_possible(chat, text):
    with FakeModelServer(play.chatty) as server:
        for session in (chat(), chat(server.url)):
            assert "rerail plan INC-" in texts(session, text)
        assert server.requests == []


def test_commands_read_and_notes_go_to_the_timeline(chat):
    session = chat()
    assert "E1" in texts(session, "/evidence") and ">      3" in texts(session, "/evidence e1")
    assert "[1]" in texts(session, "/grep out memory") and "train.log:3" in texts(
        session, "/show 1"
    )
    assert ">      3" in texts(session, "/show L1")
    assert "needs text" in texts(session, "/grep") and "no result 7" in texts(session, "/show 7")
    assert "cuda_oom" in texts(session, "/runbook")
    assert "suspect" in texts(session, "/ranks") and "/help" in texts(session, "/rm -rf")
    session_again = chat() if texts(session, "/note amber LED") else None
    assert "amber LED" in texts(session, "/timeline")
    note = [e for e in session_again.file.timeline if e.kind == "note"]
    assert (note[0].text, note[0].actor, str(note[0].source)) == ("amber LED", "ann", "human")
    assert {t.name for t in session._tools()} & {"run", "shell", "bash"} == set()


def test_a_session_is_resumed_undone_and_exported(chat, tmp_path):
    session = chat()
    texts(session, "why?")
    texts(session, "which ranks")
    assert "resumed: 2 questions" in "".join(line.text for line in chat().header())
    assert "forgotten: which ranks" in texts(session, "/undo")
    assert [m.text for m in chat().messages if m.role == "user"] == ["why?"]
    texts(session, f"/export {tmp_path / 'chat.txt'}")
    assert "user: why?" in (tmp_path / "chat.txt").read_text()
    assert "No such file" in texts(session, "/export /no/such/folder/x")


def test_a_models_sentences_are_checked_and_its_tools_are_numbered(chat):
    with FakeModelServer(play.chatty) as server:
        session = chat(server.url)
        lines = say(session, "tell me")
        roles = [m["role"] for m in server.requests[-1]["messages"]]
        assert server.requests[0]["stream"] and roles[-1] == "tool"
    assert next(t for _, t in lines if t.startswith("* grep(memory)")).endswith("[1]")
    # It says more than the line, so it is marked; a sentence of the line's own words is not.
    assert ("", "CUDA ran out of memory [L1]. (cited, not verified)") in lines
    assert ("", "The search shows it too [1]. (cited, not verified)") in lines
    dim = [t for style, t in lines if style == "dim" and t.startswith("unverified")]
    assert any("gpu-99 does not stand there" in t for t in dim)
    assert any("It will happen again." in t for t in dim)
    assert session.tokens > 0 and "out of memory" in session.messages[-1].text


@pytest.mark.parametrize(
    "behaviour", [play.status(500), play.status(429), play.garbage, play.endless, play.dripping(9)]
)
def test_a_failing_model_is_a_line_and_the_record_answers(chat, behaviour):
    with FakeModelServer(behaviour) as server:
        session = chat(server.url, model_max_tokens=30_000)
        session.settings = session.settings.model_copy(update={"model_max_seconds": 2.0})
        text = texts(session, "why?")
    assert "model unavailable" in text and "out of memory" in text
    assert session.messages[-1].role == "assistant"


def test_an_answer_that_nothing_shows_is_cut_short_and_the_record_answers(chat):
    with FakeModelServer(lambda _: Reply("It was the network. " * 30)) as server:
        session = chat(server.url)
        said = texts(session, "is it the weather?")
        assert said.count("unverified:") == 4 and "26 more" in said
        assert "from the record" in said and "Missing:" in said
        texts(session, "sure?")
        sent = play.all_text(server.requests[-1])
        assert "It was the network" not in sent and "is it the weather" in sent


def test_hidden_names_are_real_again_on_the_screen(chat, job):
    def answers(body):
        sent = play.all_text(body)
        assert "ice-041" not in sent and "HOST_" in sent
        return Reply("The driver is on HOST_1 [L1].")

    with FakeModelServer(answers) as server:
        session = chat(server.url, model_hide_names=True)
        texts(session, "/note it runs on ice-041")
        said = texts(session, "which one?")
    # The name stands in no cited line, and that is told with the real name.
    assert "ice-041" in said and "HOST_" not in said


def test_stopping_an_answer_keeps_the_session(chat):
    with FakeModelServer(play.chatty) as server:
        session = chat(server.url)
        answer = session.reply("tell me")
        next(answer)
        answer.close()
        assert session.messages[-1].text.endswith("(stopped)")
        assert "Held responsible" in texts(chat(), "which ranks")


def test_sentences_come_out_whole_with_their_citations():
    stream = [
        "It fai",
        "led [L1]. Then",
        " e.g. rank 2 died. [L2] And",
        " 3.5 s later\n",
        "the end",
    ]
    assert list(sentences(stream)) == [
        "It failed [L1].", "Then e.g. rank 2 died. [L2]", "And 3.5 s later", "the end",
    ]  # fmt: skip


def test_markup_and_escapes_of_a_model_are_not_printed():
    shown = Shown()
    shown.handle(SnapshotLine(file="f", number=1, text="x"))
    line = checked("See ![a](http://e.test/?k=v) \x1b[31mred\x1b[0m [L1].", shown, {})
    assert line.text == 'unverified: the model suggests: "See a red [L1]."'
    shown.handle(SnapshotLine(file="f", number=2, text="CUDA out of memory"))
    assert checked("CUDA out of memory [L2].", shown, {}).text == "CUDA out of memory [L2]."
    loose = checked("Loose optical cable [L2].", shown, {})
    assert loose.text == "Loose optical cable [L2]. (cited, not verified)"


@pytest.fixture
def terminal(tmp_path, job):
    """A real `rerail chat` in a pseudo-terminal: type into it, wait for words, wait for its end."""
    pytest.importorskip("prompt_toolkit")
    rerail = str(Path(sys.executable).parent / "rerail")
    environment = {**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data"), "TERM": "xterm"}
    subprocess.run([rerail, "diagnose", "-q", str(job(LOG))], env=environment, check=True)
    opened = []

    def begin(**more):
        child, end = pty.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored behind a script's `&`
            os.execve(rerail, [rerail, "chat"], {**environment, **more})
        opened.append((child, end))
        seen = b""

        def wait_for(words):
            nonlocal seen
            latest = time.monotonic() + 60
            while words not in seen and time.monotonic() < latest:
                if select.select([end], [], [], 0.2)[0]:
                    seen += os.read(end, 65536)
            assert words in seen
            seen = seen.split(words, 1)[1]

        def quit_well():
            os.write(end, b"/quit\r")
            _, status = os.waitpid(child, 0)
            opened.remove((child, end))
            os.close(end)
            return os.waitstatus_to_exitcode(status) == 0

        wait_for(b"[?2004h")
        return lambda keys: os.write(end, keys), wait_for, quit_well

    yield begin
    for child, end in opened:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(end)


def test_a_real_terminal_survives_ctrl_c(terminal):
    type_in, wait_for, quit_well = terminal()
    type_in(b"half a quest\x03")
    type_in(b"which ranks\r")
    wait_for(b"Held responsible: rank 1.")
    assert quit_well()


def test_ctrl_c_stops_an_answer_that_streams_and_keeps_the_session(terminal):
    def talks(body):
        last = body["messages"][-1]["content"]
        text = "The first sentence stands [L1]. " * 40 if "tell" in last else "Short answer [L1]."
        return Reply(text, drip_s=0.3 if "tell" in last else 0.0)

    with FakeModelServer(talks) as server:
        type_in, wait_for, quit_well = terminal(RERAIL_MODEL_URL=server.url, RERAIL_MODEL="fake")
        type_in(b"tell me all\r")
        wait_for(b"The first sentence stands")
        type_in(b"\x03")
        wait_for(b"stopped")
        type_in(b"and now?\r")
        wait_for(b"Short answer")
        assert quit_well()
        again = terminal()
        again[0](b"/undo\r")
        again[1](b"forgotten: and now?")
        assert again[2]()


def test_a_free_question_without_a_model_is_searched_for(chat):
    session = chat("")
    found = texts(session, "did anybody see CUDA memory widgets?")
    assert "Lines that hold 'memory' and 'CUDA'" in found
    nothing = texts(session, "was the flux capacitor overheated?")
    assert "No line of this job holds" in nothing and "would need a model" in nothing


def test_tab_completes_commands_incidents_and_files(chat):
    pytest.importorskip("prompt_toolkit")
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from rerail.assistant.cli.chat import completer

    session = chat("")
    made = completer(session, ["INC-abcdefghij"])

    def after(text):
        return [c.text for c in made.get_completions(Document(text), CompleteEvent())]

    assert after("/ev") == ["/evidence"] and after("/gr") == ["/grep"]
    assert after("like INC-ab") == ["INC-abcdefghij"]
    name = session.facts.lines.files()[0]
    assert name in after(f"/window {name[:3]}") and "cuda_oom" in after("/runbook cuda_o")


def test_the_work_is_told_with_tool_tokens_and_cost(chat):
    session = chat("http://127.0.0.1:9/v1", model_price_in=1e6)
    assert session.doing() == "looking into the record"
    session._budget = budget_from(session.settings)
    session._budget.spend(20, 0)
    assert "20 tokens, 20.0000" in session.doing() and "asking" in session.doing()
    session._at = "* grep"
    assert session.doing().startswith("* grep")


def test_no_style_under_no_color(monkeypatch):
    from rerail.assistant.cli.working import styled

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert styled()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not styled()
