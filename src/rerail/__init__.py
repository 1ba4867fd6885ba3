"""Puts a derailed training job back on the rails: the vocabulary every wing speaks."""

from __future__ import annotations

TYPE_CHECKING = (
    False  # typing takes 10 ms to load, in which Ctrl-C is answered by Python and not by us
)
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"
_FOR_NOTEBOOKS = ("diagnose", "incident", "incidents", "report")


def __getattr__(name: str) -> Any:
    """Load `rerail.diagnose`, `.incident`, `.incidents` and `.report` when a notebook asks for them."""
    if name in _FOR_NOTEBOOKS:
        # By name: the vocabulary imports no wing.
        from importlib import import_module

        return getattr(import_module("rerail.assistant.notebook"), name)
    raise AttributeError(f"module 'rerail' has no attribute {name!r}")
