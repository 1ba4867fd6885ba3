"""A model's explanation as text for a terminal, below the verdict and marked as what it is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from rerail.assistant.agent.claims import Check
from rerail.assistant.agent.explain import Explanation, ModelClaim

_STAND = {
    "agrees": "agrees with the rules",
    "disagrees": "DISAGREES with the rules; the verdict above stands",
    "adds": "proposes a cause that the rules do not know",
    "abstains": "cannot tell the cause",
}


def sentence(claim: ModelClaim) -> str:
    """Return one sentence with its lines and how far it is checked, for any plain-text sink."""
    cites = f" [{', '.join(claim.lines[:4])}]" if claim.lines else ""
    if claim.check is Check.SUGGESTED:
        return f'the model suggests: "{claim.text}"'
    if claim.check.counts:
        return f"{claim.check}: {claim.text}{cites}"
    return f"cited, not verified: {claim.text}{cites} ({claim.problem})"


class Row:
    """Prints the rows of an explanation."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, label: str, text: str, style: str = "") -> None:
        """Print one row under its label."""
        line = Text(label.ljust(10), style="bold")
        line.append(text, style=style)
        self._console.print(line, highlight=False, soft_wrap=True)

    def heading(self, text: str) -> None:
        """Begin an explanation."""
        self._console.print()
        self("EXPLAINED", text, "dim")

    def claim(self, claim: ModelClaim) -> None:
        """Print one claim with how far it is checked."""
        self("", sentence(claim), "" if claim.check.counts else "dim")


class ClaimsAsTheyCome:
    """Prints claims while the answer arrives; what the model suggests waits for its heading."""

    def __init__(self, name: str, console: Console) -> None:
        self._name = name
        self._row = Row(console)
        self.shown: list[ModelClaim] = []

    def show(self, claim: ModelClaim) -> None:
        """Print one claim."""
        if not self.shown:
            self._row.heading(f"by {self._name}; claims as they come, each as far as it is checked")
        self.shown.append(claim)
        if claim.check is not Check.SUGGESTED:
            self._row.claim(claim)

    def break_off(self) -> None:
        """Say that what was printed is no answer: it was stopped, or ended in an error."""
        if self.shown:
            self._row("", "the answer broke off here", "dim")


def render_explanation(
    said: Explanation, console: Console, *, shown: Sequence[ModelClaim] = ()
) -> None:
    """Print an explanation: first what code has checked, then the model's own words, marked.

    `shown` are the claims that were printed while they came; where they are not those of the answer
    that speaks for all samples, the answer is printed whole and says so.
    """
    row = Row(console)
    used = (
        f"{said.seconds:.0f} s, {said.tokens_in + said.tokens_out} tokens, "
        f"{_figure(said.claims)}, {said.votes} of {said.samples} samples agree"
    )
    came = bool(shown) and list(shown) == said.claims
    if came:
        row("", used, "dim")
    else:
        row.heading(f"by {said.name}, {used}")
    if shown and not came:
        row("", "the claims above are not those of the answer that counts, which is this one")
    text = _STAND.get(said.stand, said.stand)
    if said.stand in ("disagrees", "adds") and said.failure_type:
        text += f": {said.failure_type} ({said.status})"
    row("", text)
    if said.first_fault is not None and said.stand != "agrees":
        row(
            "", f"at {said.first_fault.file}:{said.first_fault.line}  {said.first_fault.text[:160]}"
        )
    for claim in sorted(said.claims, key=lambda one: not one.check.counts):
        if claim.check is not Check.SUGGESTED and not came:
            row.claim(claim)
    own = [one for one in said.summary_checks if one.check is not Check.SUGGESTED]
    own_rows = [sentence(one) for one in own]
    own_rows += [f"not {rival['failure_type']}: {rival['because']}" for rival in said.rivals[:4]]
    own_rows += [f"would help: {missing}" for missing in said.missing[:4]]
    suggested = [
        sentence(one)
        for one in (*said.claims, *said.summary_checks)
        if one.check is Check.SUGGESTED
    ]
    for at, text in enumerate([*own_rows, *suggested]):
        row("ITS WORDS" if at == 0 else "", text, "dim")
    for problem in said.problems:
        row("", f"note: the answer {problem}", "dim")


def _figure(claims: Sequence[ModelClaim]) -> str:
    checked = sum(claim.check.counts for claim in claims)
    return f"{checked} of {len(claims)} claims checked by code"
