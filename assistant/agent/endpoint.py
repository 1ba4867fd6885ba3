"""The model behind its endpoint: any OpenAI-compatible base URL, and its failures in plain words."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rerail.errors import ConfigError, ModelError
from rerail.settings import Settings

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

T = TypeVar("T")
_REQUEST_S = 60.0
_MOST_ANSWER_TOKENS = 4_000  # models that think aloud count their thoughts


def configured(settings: Settings) -> bool:
    """Tell whether a model was asked for."""
    return bool(settings.model_url and settings.model)


def refuses_request(error: Exception) -> bool:
    """Tell whether a server refused the form of a request: tools, or a temperature, that it lacks."""
    return getattr(error, "status_code", None) in (400, 422, 500, 501)


def open_model(
    settings: Settings, *, temperature: float | None, streaming: bool = False
) -> BaseChatModel:
    """Return the chat model of the settings.

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
        from langchain_openai import ChatOpenAI
    except ModuleNotFoundError:
        raise ConfigError(
            "a model is configured, but the agent is not installed",
            subject="model_url",
            hint="pip install 'rerail[agent]'",
        ) from None
    return ChatOpenAI(
        base_url=settings.model_url,
        model=settings.model,
        # Local servers need no key, but the client insists on one.
        api_key=settings.model_key.get_secret_value() or "none",
        temperature=temperature,
        timeout=min(_REQUEST_S, settings.model_max_seconds),
        max_retries=1,
        max_completion_tokens=_MOST_ANSWER_TOKENS,
        streaming=streaming,
        stream_usage=True if streaming else None,
        use_responses_api=False,
    )


def within(seconds: float, work: Callable[[], T]) -> T:
    """Run `work` in a thread of its own and wait at most `seconds`.

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
            f"the model did not finish within {seconds:.0f} s",
            subject="seconds",
            hint="raise RERAIL_MODEL_MAX_SECONDS",
            recoverable=True,
        ) from None
    if good:
        return value  # type: ignore[no-any-return]
    raise value


def in_words(error: Exception) -> ModelError:
    """Return a failure of the endpoint or of its answer as an error with one clear sentence."""
    if isinstance(error, ModelError):
        return error
    name = type(error).__name__
    status = getattr(error, "status_code", None)
    if status == 429:
        text, hint = "the endpoint refuses for now (429, too many requests)", "try again later"
    elif status in (401, 403):
        text, hint = f"the endpoint does not accept the key ({status})", "check RERAIL_MODEL_KEY"
    elif status == 404:
        text, hint = "the endpoint does not know this path or model (404)", "check RERAIL_MODEL_URL"
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
