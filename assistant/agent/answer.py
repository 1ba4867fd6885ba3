"""The form in which a model answers, and how its text is read."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from rerail.assistant.agent.claims import Claim, claim_of
from rerail.errors import ModelError

_FENCE = re.compile(r"```(?:json)?\s*(\{.*?\})\s*```", re.DOTALL)
MOST_CLAIMS = 12


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Rival(_Part):
    """Another cause that was considered, and why it lost."""

    failure_type: str
    because: str = ""
    lines: list[str] = []


class Answer(_Part):
    """What the model says of an incident.

    `failure_type` is a leaf of the taxonomy or null; `first_fault` is the handle of the line where
    the failure began, or null; `missing` names evidence that would decide.
    """

    failure_type: str | None = None
    first_fault: str | None = None
    summary: str = ""
    claims: list[Claim] = []
    rivals: list[Rival] = []
    missing: list[str] = []


FORM = """{"failure_type": "leaf id or null", "first_fault": "L3 or null",
 "claims": [{"kind": "cause", "subject": "L3", "relation": "is", "object": "leaf id", "lines": ["L3"]},
  {"kind": "place", "subject": "L3", "relation": "rank or node or gpu", "object": "the number or name", "lines": ["L3"]},
  {"kind": "order", "subject": "L3", "relation": "before or after", "object": "L9", "lines": ["L3", "L9"]},
  {"kind": "consequence", "subject": "L9", "relation": "follows from", "object": "L3", "lines": ["L9", "L3"]},
  {"kind": "quote", "subject": "L3", "relation": "says", "object": "words of that line, unchanged", "lines": ["L3"]}],
 "summary": "at most two sentences in your own words, each with its lines: [L3]",
 "rivals": [{"failure_type": "leaf id", "because": "why it lost", "lines": ["L7"]}],
 "missing": ["evidence that would decide"]}"""


def read_answer(text: str) -> Answer:
    """Read an answer from a model's text, with or without a fence or words around it.

    Raises:
        ModelError: when there is no JSON object of the form in it.
    """
    what = ""
    for candidate in _candidates(text):
        try:
            raw = json.loads(candidate, parse_constant=_no_number)
        except RecursionError:
            what = what or "it is nested too deeply"
            continue
        except ValueError as error:
            what = what or _named(candidate, error)
            continue
        if isinstance(raw, dict):
            return answer_from(raw)
        kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
        what = what or f"it is {kinds.get(type(raw), 'a number')}, not an object"
    raise ModelError(
        f"the model's answer is not the JSON that was asked for: {what}",
        subject=text[:80],
        hint="try RERAIL_MODEL_ANSWER=tool, or a model that follows instructions",
        recoverable=True,
    )


def _no_number(name: str) -> None:
    """JSON has no NaN and no Infinity; what a model writes so is no value."""
    del name


def _named(text: str, error: ValueError) -> str:
    """Say what is wrong with a text that is no JSON."""
    body = text.strip()
    if not body:
        return "it is empty"
    if "{" not in body and "[" not in body:
        return "it is prose"
    if re.search(r"[{,]\s*'", body):
        return "it is written with single quotes"
    if re.search(r",\s*[}\]]", body):
        return "it has a comma before a closing bracket"
    if isinstance(error, json.JSONDecodeError) and error.pos >= len(body) - 1:
        return "it breaks off before its end"
    if not body.startswith("{"):
        return "there are words around broken JSON"
    where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
    return f"it is broken{where}"


def _words_of_form(part: Any) -> set[str]:
    if isinstance(part, dict):
        return set().union(*map(_words_of_form, part.values()))
    if isinstance(part, list):
        return set().union(*map(_words_of_form, part))
    return {part.lower()} if " " in part else set()


_WORDS_OF_FORM = frozenset(_words_of_form(json.loads(FORM)))


def _is_form(text: object) -> bool:
    return isinstance(text, str) and text.strip(" .").lower() in _WORDS_OF_FORM


def _without_form(raw: dict[str, Any]) -> dict[str, Any]:
    """Leave out what only repeats the form: small models return it as it was given to them.

    Raises:
        ModelError: when nothing else is left.
    """
    kept: dict[str, Any] = {}
    for key, value in raw.items():
        if _is_form(value):
            continue
        if isinstance(value, list):
            value = [
                one
                for one in value
                if not _is_form(one)
                and not (isinstance(one, dict) and any(map(_is_form, one.values())))
            ]
        kept[key] = value
    if kept != raw and not any(kept.get(key) for key in Answer.model_fields):
        raise ModelError(
            "the model repeated the form, which is not the JSON that was asked for",
            subject=str(raw)[:80],
            hint="try a larger model",
            recoverable=True,
        )
    return kept


def answer_from(raw: dict[str, Any]) -> Answer:
    """Check an answer that is already an object.

    Raises:
        ModelError: when its parts are of the wrong kind, or it is the form itself.
    """
    raw = _without_form(raw)
    if isinstance(raw.get("claims"), list):
        raw["claims"] = [claim_of(one) for one in raw["claims"]]
    for key in ("claims", "rivals", "missing"):
        if isinstance(raw.get(key), list):
            raw[key] = raw[key][:MOST_CLAIMS]
        elif raw.get(key) is None:
            raw.pop(key, None)
        elif isinstance(raw[key], dict):
            raw[key] = [raw[key]]
    if isinstance(raw.get("summary"), list):
        raw["summary"] = " ".join(str(part) for part in raw["summary"])
    try:
        return Answer.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        raise ModelError(
            f"the model's answer has a wrong {'.'.join(map(str, first['loc']))}: {first['msg']}",
            subject=str(first["loc"]),
            hint="try RERAIL_MODEL_ANSWER=tool",
            recoverable=True,
        ) from None


def claim_from(raw: Any) -> Claim | None:
    """Return one item of a claims list as `answer_from` reads it; None where it would not count."""
    if _is_form(raw) or (isinstance(raw, dict) and any(map(_is_form, raw.values()))):
        return None
    try:
        return Claim.model_validate(claim_of(raw))
    except ValidationError:
        return None


def _candidates(text: str) -> list[str]:
    # Reasoning models print their thoughts first.
    body = re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL).strip()
    found = [body]
    found += [match[1] for match in _FENCE.finditer(body)]
    start, end = body.find("{"), body.rfind("}")
    if 0 <= start < end:
        found.append(body[start : end + 1])
    return found
