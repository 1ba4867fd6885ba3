"""Scripts for the fake model: the honest, the broken, the lying and the obedient."""

from __future__ import annotations

import json
import re
from typing import Any

from rerail.evals.fake_model.server import Body, Reply

_TYPE = re.compile(r"failure type (\w+)")
_INITIATING = re.compile(r"(L\d+) initiating")
_QUOTED = re.compile(r"^(L\d+) (\S+?):(\d+)[^|\n]*\| (.*)$", re.MULTILINE)


def all_text(body: Body) -> str:
    """Return everything that was sent, as one text."""
    return "\n".join(str(m.get("content") or "") for m in body.get("messages", []))


def called(body: Body) -> list[str]:
    """Return the names of the tools that were called before."""
    return [
        call["function"]["name"]
        for m in body.get("messages", [])
        for call in m.get("tool_calls") or []
    ]


def answer(**fields: Any) -> Reply:
    """Return an answer of the form that was asked for."""
    return Reply(json.dumps({"claims": [], "rivals": [], "missing": [], "summary": "", **fields}))


def claim(kind: str, subject: str | None, relation: str, thing: str) -> dict[str, Any]:
    """Return a typed claim; lines that it speaks of are cited."""
    cited = [subject, thing] if thing.startswith("L") and thing[1:].isdigit() else [subject]
    return {"kind": kind, "subject": subject, "relation": relation, "object": thing, "lines": cited}


def echo(body: Body) -> Reply:
    """Repeat the rules' verdict with its line: the best an honest model can do without thought."""
    text = all_text(body)
    leaf = _TYPE.search(text)
    first = _INITIATING.search(text)
    handle = first[1] if first else None
    known = leaf[1] if leaf and leaf[1] != "none" and handle else None
    return answer(
        failure_type=known,
        first_fault=handle if known else None,
        summary=f"The line says so [{handle}]." if handle else "",
        claims=[claim("cause", handle, "is", known)] if known else [],
    )


def keywords(body: Body) -> Reply:
    """Pick the first quoted line with a loud word and guess its type from a short list."""
    guesses = (
        ("out of memory", "cuda_oom"),
        ("Xid", "gpu_fallen_off_bus"),
        ("No space left", "disk_full_or_quota"),
        ("Timed out", "nccl_timeout_unexplained"),
        ("Error", "python_exception"),
    )
    for match in _QUOTED.finditer(all_text(body)):
        for word, leaf in guesses:
            if word in match[4]:
                return answer(
                    failure_type=leaf,
                    first_fault=match[1],
                    summary=f"A line holds {word} [{match[1]}].",
                    claims=[claim("quote", match[1], "says", word)],
                )
    return answer(failure_type=None)


def looks_first(body: Body) -> Reply:
    """Call two tools, then answer as `echo`."""
    used = called(body)
    if "overview" not in used:
        return Reply(tools=[("overview", {})])
    if "grep" not in used:
        return Reply(tools=[("grep", {"text": "error"})])
    return echo(body)


def chatty(body: Body) -> Reply:
    """Chat: look once, then answer with one sentence that holds and two that do not."""
    if "tools" in body and "grep" not in called(body):
        return Reply("Looking.", tools=[("grep", {"text": "memory"})])
    return Reply(
        "CUDA ran out of memory [L1]. The search shows it too [1]. "
        "gpu-99 is broken [L1]. It will happen again."
    )


def endless(body: Body) -> Reply:
    """Never answer: one more tool call each time, even when there is no tool left."""
    return Reply(tools=[("grep", {"text": f"word{len(called(body))}"})])


def invented(body: Body) -> Reply:
    """Call a tool that does not exist, once; then answer."""
    if "run_shell" not in called(body):
        return Reply(tools=[("run_shell", {"command": "scontrol update node=gpu-1 state=drain"})])
    return echo(body)


def lies(body: Body) -> Reply:
    """Blame a node nobody heard of, with citations that were never shown."""
    return answer(
        failure_type="gpu_fallen_off_bus",
        first_fault="L9999",
        summary="Node gpu-9999 died.",
        claims=[
            {"text": "gpu-9999 reported Xid 79 at 03:01:44.", "lines": ["L9999"]},
            {"text": "The switch sw-12 restarted 7 times.", "lines": ["L1"]},
            {"text": "It was the network.", "lines": []},
        ],
    )


def malformed(_: Body) -> Reply:
    """Answer with words where JSON was asked for."""
    return Reply("Sure! The failure is probably { hardware related: yes")


def garbage(_: Body) -> Reply:
    """Send a body that is no completion at all."""
    return Reply(raw=b'{"choices": "yes", "object"')


def empty(_: Body) -> Reply:
    """Send a completion without a choice."""
    return Reply(raw=b'{"id":"x","object":"chat.completion","created":0,"model":"m","choices":[]}')


def status(code: int) -> Any:
    """Return a behaviour that always fails with an HTTP status."""
    return lambda _: Reply(status=code)


def slow(delay_s: float) -> Any:
    """Return a behaviour that answers too late."""
    return lambda body: Reply(echo(body).text, delay_s=delay_s)


def dripping(drip_s: float) -> Any:
    """Return a behaviour that sends a byte now and then, for ever."""
    return lambda body: Reply(echo(body).text, drip_s=drip_s)
