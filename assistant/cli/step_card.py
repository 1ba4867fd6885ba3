"""The plan and its steps laid out for the terminal; what they say is the presentation model's."""

from __future__ import annotations

from collections.abc import Iterator

from rerail.assistant.presentation.plan import PlanView, StepView


def plan_lines(view: PlanView) -> Iterator[str]:
    """Yield the lines of a plan."""
    yield f"PLAN {view.id}  for {view.incident}  job {view.job}"
    yield (
        f"  rule {view.rule}, mode {view.mode}; made {view.made}, expires {view.expires}; hash {view.digest}"
    )
    for warning in view.warnings:
        yield f"  {warning}"
    for step in view.steps:
        yield ""
        yield f"  {step.number}  {step.name}"
        yield f"     state     {step.state}" + (f" ({step.note})" if step.note else "")
        yield from card_lines(step, "     ")
    for refusal in view.refusals:
        yield ""
        yield f"  REFUSED  {refusal}"
    if view.next:
        yield ""
        yield view.next


def decision_lines(view: PlanView, step: StepView) -> Iterator[str]:
    """Yield the card on which a person decides."""
    yield f"STEP {step.number}  {step.name}   plan hash {view.digest}"
    # What is checked is said with what it says now, behind the card.
    yield from (line for line in card_lines(step, "  ") if not line.startswith("  checked "))
    yield f"  evidence  {', '.join(step.evidence) or 'none cited'}; rerail show {view.incident}"
    yield f"  policy    rule {view.rule}; expires {view.expires}"


def card_lines(step: StepView, indent: str) -> Iterator[str]:
    """Yield what a step is, one fact a line."""
    rows = [("was run" if step.done else "exactly", command) for command in step.commands]
    rows += [("touches", step.touches), ("because", step.because)]
    if step.approval:
        undo = step.undo or "nothing to undo"
        rows.append(("risk", f"{step.risk}; undo: {undo}; {step.approval}"))
    rows += [("budget", step.budget), *step.further]
    for word, text in rows:
        if text:
            yield f"{indent}{word:<9} {text}"
