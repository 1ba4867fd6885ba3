"""Records what an endpoint answered, and plays it back: a run can be scored again without it.

A recording is JSON lines: a head (model, prompt id, whether it is a fake), then one line for each
answer with its case, iteration and turn. Answers name lines by handle, and handles are the same in
every run, so that an old answer still means the same lines while the prompt id is the same.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerail.errors import EvidenceError
from rerail.evals.fake_model.server import Body, Reply

Key = tuple[str, int, int]


@dataclass(slots=True)
class Tape:
    """Answers by case, iteration and turn; `at` is where the run is."""

    head: dict[str, Any]
    answers: dict[Key, tuple[int, str]] = field(default_factory=dict)
    at: tuple[str, int] = ("", 0)
    turn: int = 0

    def seek(self, case: str, iteration: int) -> None:
        """Go to the beginning of one case."""
        self.at, self.turn = (case, iteration), 0

    def play(self, _: Body) -> Reply:
        """Answer as it was recorded; a turn that was not recorded is a 410."""
        status, body = self.answers.get((*self.at, self.turn), (410, ""))
        self.turn += 1
        return _reply(status, body)

    def save(self, path: Path) -> None:
        """Write the recording."""
        rows = [json.dumps(self.head)]
        rows += [
            json.dumps({"case": c, "iteration": i, "turn": t, "status": s, "body": b})
            for (c, i, t), (s, b) in self.answers.items()
        ]
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def load_tape(path: Path) -> Tape:
    """Read a recording.

    Raises:
        EvidenceError: naming file and line of what is no recording.
    """
    try:
        # Only a newline ends a row: an answer may hold any other separator of lines.
        head, *rows = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
        tape = Tape({"iterations": 1, "blind": False, "model": "recorded", **json.loads(head)})
        for row in rows:
            if not row.strip():
                continue
            one = json.loads(row)
            key = (str(one["case"]), int(one["iteration"]), int(one["turn"]))
            tape.answers[key] = (int(one.get("status", 200)), whole_answer(one["body"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EvidenceError(
            f"{path}: not a recorded run ({error})",
            subject=str(path),
            hint="rerail eval agent --model URL --record FILE makes one",
        ) from None
    return tape


class Forwarder:
    """Passes each request on to the real endpoint and keeps what came back."""

    def __init__(self, tape: Tape, url: str, key: str, *, seconds: float) -> None:
        self._tape = tape
        self._seconds = seconds
        self._url = url.rstrip("/") + "/chat/completions"
        self._key = key

    def forward(self, body: Body) -> Reply:
        """Send one request on."""
        request = urllib.request.Request(  # noqa: S310 - the URL is the user's own endpoint
            self._url,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=self._seconds) as answer:  # noqa: S310
                status, text = answer.status, answer.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            # Why it was refused decides how it is asked again.
            status, text = error.code, error.read().decode("utf-8", "replace")[:2_000]
        except OSError:
            status, text = 502, ""
        self._tape.answers[(*self._tape.at, self._tape.turn)] = (status, text)
        self._tape.turn += 1
        return _reply(status, text)


def whole_answer(body: Any) -> str:
    """Return a recorded body as the text of one completion.

    Recorders keep a body as its text or as the object, and a stream as its server-sent events or as
    the list of their objects; a stream is put together.

    Raises:
        ValueError: when an event of a stream is no JSON object.
    """
    pieces = _pieces(body)
    if pieces is None:
        return body if isinstance(body, str) else json.dumps(body)
    content = ""
    whole: dict[str, Any] = {}
    calls: dict[int, dict[str, Any]] = {}
    for piece in pieces:
        if not isinstance(piece, dict):
            raise ValueError("a piece of a stream is no object")
        whole |= {key: value for key, value in piece.items() if value is not None}
        for choice in piece.get("choices") or []:
            delta = choice.get("delta") or {}
            content += delta.get("content") or ""
            for call in delta.get("tool_calls") or []:
                # Some servers number no calls, and begin each with an id.
                at = call.get("index")
                if at is None:
                    at = len(calls) - (0 if call.get("id") or not calls else 1)
                known = calls.setdefault(
                    at,
                    {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
                )
                known["id"] = call.get("id") or known["id"]
                function = call.get("function") or {}
                known["function"]["name"] += function.get("name") or ""
                known["function"]["arguments"] += function.get("arguments") or ""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [calls[at] for at in sorted(calls)]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return json.dumps({**whole, "object": "chat.completion", "choices": [choice]})


def _pieces(body: Any) -> list[Any] | None:
    """Return the objects of a stream, or None where the body is none."""
    if isinstance(body, list):
        return body
    if not isinstance(body, str) or body.lstrip().startswith("{"):
        return None
    # An event stream may begin with a comment or another field (WHATWG, server-sent events).
    data = [
        row.removeprefix("data:").strip() for row in body.split("\n") if row.startswith("data:")
    ]
    return [json.loads(one) for one in data if one != "[DONE]"] if data else None


def _reply(status: int, text: str) -> Reply:
    return Reply(raw=text.encode()) if status == 200 else Reply(text, status=status)
