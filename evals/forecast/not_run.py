"""A bar that was not run, and why: never counted as held unless it was left out on purpose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NotRun:
    """Why a bar was not run; false as a bar where it was wanted, true where a flag left it out."""

    why: str
    wanted: bool = True

    def __bool__(self) -> bool:
        return not self.wanted
