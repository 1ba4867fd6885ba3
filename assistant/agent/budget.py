"""What one incident may cost: requests, tokens and seconds; counted as they are spent."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rerail.errors import ModelError
from rerail.settings import Settings


class BudgetSpentError(ModelError):
    """The budget of an incident is used up."""


@dataclass(slots=True)
class Budget:
    """Limits and what was used of them. Prices are per million tokens.

    `arriving` counts the pieces of the answer that is being streamed, about one a token; its end
    replaces them by what the server counted.
    """

    max_calls: int
    max_tokens: int
    max_s: float
    price_in: float = 0.0
    price_out: float = 0.0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    arriving: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the budget was opened."""
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.max_s - self.elapsed_s

    @property
    def tokens(self) -> int:
        """Tokens read and written so far."""
        return self.tokens_in + self.tokens_out

    @property
    def cost(self) -> float:
        """What the tokens cost, in the currency of the prices."""
        return (self.tokens_in * self.price_in + self.tokens_out * self.price_out) / 1e6

    def check(self) -> None:
        """Raise BudgetSpentError when a limit is reached."""
        for name, used, most in (
            ("requests", self.calls, self.max_calls),
            ("tokens", self.tokens, self.max_tokens),
            ("seconds", round(self.elapsed_s), self.max_s),
        ):
            if used >= most:
                raise BudgetSpentError(
                    f"the budget of {most:g} {name} for this incident is spent",
                    subject=name,
                    hint=f"raise RERAIL_MODEL_MAX_{'CALLS' if name == 'requests' else name.upper()}",
                )

    def spend(self, tokens_in: int, tokens_out: int) -> None:
        """Count one answered request."""
        self.arriving = 0
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out


def budget_from(settings: Settings) -> Budget:
    """Return the budget that the settings allow."""
    return Budget(
        settings.model_max_calls,
        settings.model_max_tokens,
        settings.model_max_seconds,
        settings.model_price_in,
        settings.model_price_out,
    )
