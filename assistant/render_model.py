"""A model's explanation as text for a terminal, below the verdict and marked as what it is."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from rerail.assistant.agent.explain import Explanation

_STAND = {
    "agrees": "agrees with the rules",
    "disagrees": "DISAGREES with the rules; the verdict above stands",
    "adds": "proposes a cause that the rules do not know",
    "abstains": "cannot tell the cause",
}


def render_explanation(said: Explanation, console: Console) -> None:
    """Print an explanation; sentences that no shown line supports are dim and marked."""

    def row(label: str, text: str, style: str = "") -> None:
        line = Text(label.ljust(10), style="bold")
        line.append(text, style=style)
        console.print(line, highlight=False, soft_wrap=True)

    console.print()
    holding = sum(not c.problem for c in said.claims)
    row(
        "EXPLAINED",
        f"by {said.name}, {said.seconds:.0f} s, {said.tokens_in + said.tokens_out} tokens, "
        f"{holding} of {len(said.claims)} claims hold, {said.votes} of {said.samples} samples agree",
        "dim",
    )
    text = _STAND.get(said.stand, said.stand)
    if said.stand in ("disagrees", "adds") and said.failure_type:
        text += f": {said.failure_type} ({said.status})"
    row("", text)
    if said.first_fault is not None and said.stand != "agrees":
        row(
            "", f"at {said.first_fault.file}:{said.first_fault.line}  {said.first_fault.text[:160]}"
        )
    if said.summary_problem:
        row("", f"unverified: {said.summary} ({said.summary_problem})", "dim")
    elif said.summary:
        row("", f"{said.summary} [{', '.join(said.summary_lines[:4])}]")
    for claim in said.claims:
        if claim.problem:
            row("", f"unverified: {claim.text} ({claim.problem})", "dim")
        else:
            row("", f"{claim.text} [{', '.join(claim.lines[:4])}]")
    for rival in said.rivals[:4]:
        row("", f"not {rival['failure_type']}: {rival['because']}")
    for missing in said.missing[:4]:
        row("", f"would help: {missing}")
    for problem in said.problems:
        row("", f"note: the answer {problem}", "dim")
