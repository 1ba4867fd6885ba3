"""The claims of an answer while its text still arrives: each is taken when its JSON value is complete."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage

from rerail.assistant.agent.answer import MOST_CLAIMS, claim_from
from rerail.assistant.agent.budget import Budget
from rerail.assistant.agent.claims import Claim

_CLAIMS = re.compile(r'"claims"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_THOUGHT, _THOUGHT_END = "<think>", "</think>"
_DECODER = json.JSONDecoder()


class ClaimsInText:
    """Finds the complete items of the `claims` list in the text of one answer, piece by piece."""

    def __init__(self) -> None:
        self._text = ""
        self._at: int | None = None
        self._ended = False

    def feed(self, piece: str) -> list[Any]:
        """Return the items that this piece completes, as JSON values."""
        self._text += piece
        if self._ended or not re.search(r'[}\]"]', piece):
            return []
        if self._at is None:
            self._at = self._begin()
        found = []
        while self._at is not None:
            at = _BETWEEN.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._text[at : at + 1] == "]":
                self._ended = True
                break
            try:
                value, self._at = _DECODER.raw_decode(self._text, at)
            except (ValueError, RecursionError):
                break  # not complete yet, or never: what is read at the end says which
            found.append(value)
        return found

    def _begin(self) -> int | None:
        # Models that think aloud may draft an answer in their thoughts.
        after = self._text.rfind(_THOUGHT_END)
        if after < 0 and _THOUGHT in self._text:
            return None
        begun = _CLAIMS.search(self._text, max(after, 0))
        return None if begun is None else begun.end()


class Arriving:
    """Watches the messages of one run of the agent and hands on each claim once it is complete.

    Args:
        take: called with each claim, in the thread that reads the answer.
        budget: told how many pieces have arrived of the answer under way.
    """

    def __init__(self, take: Callable[[Claim], None], budget: Budget) -> None:
        self._take = take
        self._budget = budget
        self._message: str | None = None
        self._claims = ClaimsInText()
        self._taken: list[Claim] = []
        self._again: list[Claim] = []
        self._lock = threading.Lock()
        self._closed = False

    def watch(self, message: AIMessage) -> None:
        """Take one piece of an answer."""
        if message.id != self._message:  # another request, or the same one once more
            self._message, self._claims = message.id, ClaimsInText()
            self._again = list(self._taken)
        self._budget.arriving += 1
        piece = str(message.text) + _arguments(message)
        for raw in self._claims.feed(piece):
            claim = claim_from(raw)
            with self._lock:
                if self._closed or claim is None:
                    continue
                if claim in self._again:
                    self._again.remove(claim)
                elif len(self._taken) < MOST_CLAIMS:
                    self._taken.append(claim)
                    self._take(claim)

    def close(self) -> None:
        """Hand on nothing any more: who waited has given up, or has the whole answer."""
        with self._lock:
            self._closed = True


def _arguments(message: AIMessage) -> str:
    """Return a piece of the arguments of a call: with RERAIL_MODEL_ANSWER=tool the answer is one."""
    return "".join(str(one.get("args") or "") for one in getattr(message, "tool_call_chunks", ()))
