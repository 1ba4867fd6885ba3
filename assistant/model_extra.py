"""Whether what a model needs is installed."""

from __future__ import annotations

from importlib.util import find_spec

_NEEDED = {"langchain": "langchain", "langchain_openai": "langchain-openai", "httpx": "httpx"}


def not_installed() -> str | None:
    """Return which library of the extra `agent` is not there, or None."""
    return next((name for module, name in _NEEDED.items() if find_spec(module) is None), None)
