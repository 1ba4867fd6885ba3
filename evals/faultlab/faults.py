"""The places where the training job can be extended, and the lookup of extensions by name.

Names of hook methods, variables and messages are those of an ordinary trainer on purpose: they
show in tracebacks, and a traceback must not say which fault was injected.
"""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAMILIES = ("step", "comm", "limits", "start", "gpu")


@dataclass
class State:
    """What a hook may know and change about the running job."""

    rank: int
    attempt: int
    root: Path
    log: logging.Logger
    world: int = 1
    step: int = 0
    stop: bool = False
    workers: list[int] = field(default_factory=list)


class Hooks:
    """An extension that does nothing; faults override what they need.

    Attributes:
        rank: The rank that misbehaves.
        at: The step before which it does.
    """

    rank = 2
    at = 23

    def on_import(self) -> None:
        """Run while the training script is imported."""

    def before_init(self, state: State) -> None:
        """Run before the process group exists."""

    def on_model(self, state: State, model: Any) -> None:
        """Change the model before it is wrapped."""

    def on_sample(self, rank: int, index: int) -> None:
        """Run in a data loader worker before a sample is parsed."""

    def before_step(self, state: State, model: Any) -> None:
        """Run before the forward pass."""

    def after_step(self, state: State, loss: float) -> None:
        """Run after the optimizer step."""

    def after_training(self, state: State) -> None:
        """Run after the last step, before the final barrier."""

    def on_exit(self, state: State) -> None:
        """Run when everything is done."""

    def due(self, state: State) -> bool:
        """Return whether this rank has reached the step of the fault."""
        return state.rank == self.rank and state.step == self.at


def load(name: str) -> Hooks:
    """Return the hooks called `name`; an empty name gives hooks that do nothing.

    Raises:
        LookupError: No family has hooks of that name.
    """
    if not name:
        return Hooks()
    for family in FAMILIES:
        module = importlib.import_module(f"rerail.evals.faultlab.faults_{family}")
        found = module.HOOKS.get(name)
        if found is not None:
            hooks: Hooks = found()
            return hooks
    raise LookupError(f"no hooks named {name!r}")
