"""The model behind its endpoint: any OpenAI-compatible base URL, and its failures in plain words."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rerail.errors import ConfigError, ModelError
from rerail.settings import Settings

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from rerail.assistant.agent.names import Names

T = TypeVar("T")
_MOST_ANSWER_TOKENS, _SMALL_ANSWER_TOKENS = (
    4_000,
    700,
)  # models that think aloud count their thoughts
_WAIT_S = 1.0
_TOO_LONG = re.compile(
    r"(?i)context[ _-]?(?:length|size|window)|max_new_tokens|maximum (?:context|number of tokens)"
    r"|too many tokens|(?:prompt|input|request)[^.\n]{0,40} too (?:long|large)"
)
# These two take the answer's limit under its new name only; all others know the old one.
_NEW_NAMES = re.compile(r"^https?://(?:api\.openai\.com|[\w.-]+\.openai\.azure\.com)\b")


def configured(settings: Settings) -> bool:
    """Tell whether a model was asked for."""
    return bool(settings.model_url and settings.model)


def refuses_request(error: Exception) -> bool:
    """Tell whether a server refused the form of a request: tools, or a temperature, that it lacks."""
    return getattr(error, "status_code", None) in (400, 422, 500, 501)


def too_long(error: Exception) -> bool:
    """Tell whether a server refused a request because it does not fit into the model's context."""
    refused = refuses_request(error) or getattr(error, "status_code", None) == 413
    return refused and _TOO_LONG.search(str(error)) is not None


@dataclass(slots=True)
class Manner:
    """How a server wants to be asked: found out by its refusals, and kept for later requests.

    `small` asks with a short view and a short answer, for a model with a small context; `json` makes
    the server itself hold the model to a JSON object; `stream` has the answer sent as it is written.
    """

    tools: bool = True
    form: str = "text"
    temperature: bool = True
    small: bool = False
    json: bool = False
    stream: bool = False

    def yields_to(self, error: Exception) -> bool:
        """Ask for less after a refusal; False when there is nothing left to give up."""
        if too_long(error):
            if self.small:
                raise ModelError(
                    "the model's context is too small for this: it needs about 3,000 tokens",
                    subject="context",
                    hint="start the server with a context of 8,192 tokens or more",
                ) from error
            self.small, self.tools = True, False
            return True
        if refuses_request(error) and self.stream:
            self.stream = False
            return True
        extras = self.tools or self.temperature or self.json or self.form != "text"
        if refuses_request(error) and extras:
            self.tools, self.temperature, self.json, self.form = False, False, False, "text"
            return True
        return False


def passes(error: Exception) -> bool:
    """Tell whether a failure may be over in a second: refused for now, restarting, cut off."""
    status = getattr(error, "status_code", None)
    if isinstance(error.__cause__, ModelError):
        return False
    # A time-out is no such case: the server still works on the request that was given up.
    return status in (429, 500, 502, 503) or type(error).__name__ == "APIConnectionError"


def with_one_retry(work: Callable[[], T], left_s: float) -> T:
    """Run `work`, and once more after a second where its failure may pass and time is left."""
    try:
        return work()
    except Exception as error:
        if not passes(error) or too_long(error) or left_s < 2 * _WAIT_S:
            raise
    time.sleep(_WAIT_S)
    return work()


def load_client() -> None:
    """Import the model's client, which takes seconds; they are none of the model's time.

    Where the extra is not installed, `open_model` says so.
    """
    try:
        import rerail.assistant.agent.chat_model
        import rerail.assistant.agent.loop  # noqa: F401
    except ImportError:
        return


def open_model(
    settings: Settings,
    *,
    temperature: float | None,
    streaming: bool = False,
    small: bool = False,
    json: bool = False,
) -> BaseChatModel:
    """Return the chat model of the settings; see `Manner` for `small` and `json`.

    Raises:
        ConfigError: when the extra is not installed or the URL is no http URL.
    """
    if not settings.model_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"model_url {settings.model_url!r} is no http URL",
            subject="model_url",
            hint="RERAIL_MODEL_URL=http://127.0.0.1:8000/v1",
        )
    try:
        from rerail.assistant.agent.chat_model import EndpointModel
        from rerail.assistant.agent.transport import open_client
    except ModuleNotFoundError:
        raise ConfigError(
            "a model is configured, but the agent is not installed",
            subject="model_url",
            hint="pip install 'rerail[agent]'",
        ) from None
    most = _SMALL_ANSWER_TOKENS if small else _MOST_ANSWER_TOKENS
    new_name = _NEW_NAMES.match(settings.model_url) is not None
    extra: dict[str, Any] = {} if new_name else {"max_tokens": most}
    if json:
        extra["response_format"] = {"type": "json_object"}
    return EndpointModel(
        http_client=open_client(settings),
        base_url=settings.model_url,
        model=settings.model,
        # Local servers need no key, but the client insists on one.
        api_key=settings.model_key.get_secret_value() or "none",
        temperature=temperature,
        timeout=settings.model_max_seconds,
        max_retries=0,  # see `with_one_retry`
        max_completion_tokens=most if new_name else None,
        extra_body=extra or None,
        streaming=streaming,
        stream_usage=True if streaming else None,
        use_responses_api=False,
    )


def invoke(
    settings: Settings,
    turns: Callable[[bool], list[tuple[str, str]]],
    *,
    temperature: float,
    seconds: float,
    names: Names | None = None,
) -> str:
    """Send one prompt for a JSON object, without tools, and return the answer's text.

    Where the server refuses, it is asked for less.

    Args:
        settings: which endpoint.
        turns: gives the prompt; its argument says whether it must be small.
        temperature: left out where the server refuses it.
        seconds: how long all of it may take.
        names: hides names from the endpoint and restores them in the answer.

    Raises:
        ModelError: when the time is over or the context is too small.
        Exception: whatever the endpoint's client raises; see `in_words`.
    """
    manner = Manner(tools=False, json=True)
    ends = time.monotonic() + seconds
    while True:
        model = open_model(
            settings,
            temperature=temperature if manner.temperature else None,
            small=manner.small,
            json=manner.json,
        )
        messages = turns(manner.small)
        if names is not None:
            messages = [(role, names.hide(text)) for role, text in messages]

        def work(model: BaseChatModel = model, messages: Any = messages) -> str:
            answer = with_one_retry(lambda: model.invoke(messages), ends - time.monotonic())
            return str(answer.text)

        try:
            text = within(ends - time.monotonic(), work, limit_s=seconds)
            return text if names is None else names.restore(text)
        except Exception as error:
            if isinstance(error, ModelError) or not manner.yields_to(error):
                raise


def within(seconds: float, work: Callable[[], T], *, limit_s: float = 0.0) -> T:
    """Run `work` in a thread of its own and wait at most `seconds`; `limit_s` is what the user set.

    A server that sends a byte now and then never trips a read time-out; this does. The thread is
    left behind: it holds a socket and nothing else, and ends with the process.

    Raises:
        ModelError: when the time is over.
    """
    done: queue.Queue[tuple[bool, Any]] = queue.Queue(1)

    def run() -> None:
        try:
            done.put((True, work()))
        except BaseException as error:  # handed to the caller, whatever it is
            done.put((False, error))

    threading.Thread(target=run, daemon=True, name="rerail-model").start()
    try:
        good, value = done.get(timeout=max(seconds, 0.01))
    except queue.Empty:
        raise ModelError(
            f"the model did not finish within {limit_s or round(seconds, 1):g} s",
            subject="seconds",
            hint="raise RERAIL_MODEL_MAX_SECONDS",
        ) from None
    if good:
        return value  # type: ignore[no-any-return]
    raise value


def _not_installed(error: ImportError) -> ModelError:
    missing = (error.name or "a package").split(".")[0]
    text, hint = f"{missing} is not installed", "pip install 'rerail[agent]'"
    return ModelError(text, subject=missing, hint=hint, recoverable=True)


def in_words(error: Exception) -> ModelError:
    """Return a failure of the endpoint or of its answer as an error with one clear sentence."""
    # The client wraps what its transport raises.
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModelError):
            return cause
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, ImportError):
        return _not_installed(error)
    name = type(error).__name__
    status = getattr(error, "status_code", None)
    if status == 429:
        text, hint = "the endpoint refuses for now (429, too many requests)", "try again later"
    elif status in (401, 403):
        text, hint = f"the endpoint does not accept the key ({status})", "check RERAIL_MODEL_KEY"
    elif status == 404:
        text, hint = "the endpoint does not know this path or model (404)", "check RERAIL_MODEL_URL"
    elif too_long(error):
        text, hint = (
            "the request does not fit into the model's context",
            "start the server with a context of 8,192 tokens or more",
        )
    elif isinstance(status, int):
        text, hint = f"the endpoint failed with status {status}", "look at the server's own log"
    elif "Timeout" in name:
        text, hint = "the endpoint did not answer in time", "raise RERAIL_MODEL_MAX_SECONDS"
    elif "Connection" in name:
        text, hint = "the endpoint cannot be reached", "check RERAIL_MODEL_URL and that it runs"
    elif "Recursion" in name:
        text, hint = "the model went on calling tools without an answer", "try another model"
    else:
        text, hint = (
            f"the endpoint's answer cannot be read ({name})",
            "check that it speaks the OpenAI protocol",
        )
    return ModelError(text, subject=name, hint=hint, recoverable=True)
