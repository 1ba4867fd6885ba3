"""The numbers of a step line, found field by field or where those of a line like it stood."""

from __future__ import annotations

import re

from rerail.late_dataclass import dataclass
from rerail.log_parsers.held_out import counts_held_out, hints_at_held_out, measures_held_out
from rerail.log_parsers.step_forms import (
    keyed_forms,
    losses,
    marked,
    numbers,
    rank_in_front,
    rates,
    step_behind,
    step_key,
)
from rerail.log_parsers.step_layouts import Span, counted

EVALUATION = "evaluation"
"""The form of a line whose numbers are of held-out data."""


@dataclass(slots=True)
class StepRow:
    """One step line. `step` may be None where the framework prints none; times are seconds."""

    line: int
    form: str
    step: int | None = None
    loss: float | None = None
    step_time: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    throughput: float | None = None
    epoch: float | None = None
    data_time: float | None = None
    rank: int | None = None
    learning_rate: float | None = None
    time: float | None = None
    """Seconds since the epoch, of files that hold no lines with stamps."""
    value: float | None = None
    value_name: str = ""
    """A measured number of a line that names no loss, and the word beside it."""
    time_line: int | None = None
    """The line of the step time, where it is another one."""


def labelled(text: bytes) -> tuple[int | None, Span | None]:
    """Return the rank in the label of a line, and where it stands."""
    label = rank_in_front().match(text)
    if label is None:
        return None, None
    group = label.lastindex or 1  # one of the forms matched
    return int(label[group]), Span(*label.span(group))


def has_layout(form: str, text: bytes, spans: dict[str, Span]) -> bool:
    """Tell whether lines that differ from this one in numbers alone have theirs where it has its own."""
    if form not in keyed_forms():
        return True
    # Which of several keys tells the step depends on the digits behind them.
    key, step = step_key().search(text), spans.get("step")
    return key is None if step is None else key is not None and key.end() == step.start


def read_row(
    line: int, form: str, match: re.Match[bytes], text: bytes, start: int
) -> tuple[StepRow, dict[str, Span]]:
    """Read one step line, and say at which bytes of `text` each of its numbers stands."""
    row = StepRow(line, form)
    spans: dict[str, Span] = {}
    groups = match.groupdict()
    if groups.get("step"):
        row.step = counted(groups["step"])
        spans["step"] = Span(match.start("step") - start, match.end("step") - start)
    # Searches that ignore case read every byte; one word that they need is found much sooner.
    lower = text.lower()
    maybe_held_out = hints_at_held_out(lower)
    if maybe_held_out and counts_held_out(text[: match.start() - start]):
        return StepRow(line, EVALUATION, row.step), {}
    if b"reduced_train_loss" in text:
        row.loss = _first(numbers()["reduced_loss"], text, "loss", spans)
    elif groups.get("loss") is not None:
        row.loss = number_of(groups["loss"])
        spans["loss"] = Span(match.start("loss") - start, match.end("loss") - start)
    elif b"loss" in lower or b", ce" in lower:
        row.loss = _loss(text, spans) if not maybe_held_out else _loss_of_training(row, text, spans)
    elif not maybe_held_out and any(word in lower for word in losses()):
        row.loss = _first(numbers()["loss_by_name"], text, "loss", spans)
    _other_values(row, text, lower, spans)
    row.data_time = _data_time(text, lower, spans)
    timed = form not in marked("untimed")
    row.step_time = _step_time(form, groups, text, lower, spans) if timed else None
    if groups.get("tps") is not None:
        spans["throughput"] = Span(match.start("tps") - start, match.end("tps") - start)
    step = _read_beside(row, form, groups, text)
    if step is not None:
        spans["step"] = step
    row.rank, place = labelled(text)
    if place is not None:
        spans["rank"] = place
    return row, spans


def row_alike(
    line: int, form: str, match: re.Match[bytes], text: bytes, places: dict[str, Span]
) -> StepRow:
    """Read a line whose numbers stand where those of a line stood that differs from it in digits alone."""
    row = StepRow(line, form)
    for name, span in places.items():
        raw = text[span.start : span.end]
        if name in ("step", "rank"):
            if name == "rank" or form not in step_behind():
                setattr(row, name, counted(raw))
            continue
        value = number_of(raw)
        setattr(row, name, value / 1000.0 if span.milli and value is not None else value)
    _read_beside(row, form, match.groupdict(), text)
    return row


def _read_beside(
    row: StepRow, form: str, groups: dict[str, bytes | None], text: bytes
) -> Span | None:
    """Read what stands in the place of other numbers, and return where such a step stands."""
    if groups.get("tps") is not None:
        row.throughput = number_of(groups["tps"] or b"")
    behind = step_behind()[form].search(text) if form in step_behind() else None
    if behind is None:
        return None
    row.step = counted(behind[1])
    return Span(*behind.span(1))


def _other_values(row: StepRow, text: bytes, lower: bytes, spans: dict[str, Span]) -> None:
    if b"norm" in lower:
        row.grad_norm = _first(numbers()["grad_norm"], text, "grad_norm", spans)
    if b"scale" in lower:
        row.loss_scale = _first(numbers()["loss_scale"], text, "loss_scale", spans)
    if any(word in lower for word in rates()):
        row.throughput = _first(numbers()["throughput"], text, "throughput", spans)
    if b"epoch" in lower:
        row.epoch = _first(numbers()["epoch"], text, "epoch", spans)
    if b"lr" in lower or b"learning" in lower:
        row.learning_rate = _first(numbers()["learning_rate"], text, "learning_rate", spans)


def _loss(text: bytes, spans: dict[str, Span]) -> float | None:
    found = _first(numbers()["loss"], text, "loss", spans)
    return _first(numbers()["some_loss"], text, "loss", spans) if found is None else found


def _loss_of_training(row: StepRow, text: bytes, spans: dict[str, Span]) -> float | None:
    """Return the first loss that is not one of held-out data; a line of none but such is one of an evaluation."""
    seen = False
    for pattern in (numbers()["loss"], numbers()["some_loss"]):
        for match in pattern.finditer(text):
            if not measures_held_out(text[: match.start(1)]):
                spans["loss"] = Span(*match.span(1))
                return number_of(match[1])
            seen = True
    row.form = EVALUATION if seen else row.form
    return None


def _data_time(text: bytes, lower: bytes, spans: dict[str, Span]) -> float | None:
    match = numbers()["data_time"].search(text) if b"data" in lower else None
    if match is None:
        return None
    spans["data_time"] = Span(*match.span("value"))
    return number_of(match["value"])


def _step_time(
    form: str,
    groups: dict[str, bytes | None],
    text: bytes,
    lower: bytes,
    spans: dict[str, Span],
) -> float | None:
    if groups.get("rate") is not None:
        rate = number_of(groups["rate"] or b"0")
        if not rate:
            return None
        return rate if (groups["unit"] or b"").startswith(b"s/") else 1.0 / rate
    match = (
        numbers()["step_time"].search(text)
        if any(word in lower for word in (b"tim", b"(t)", b"cost"))
        else None
    )
    if match:
        value = number_of(match["value"])
        unit = (match["unit"] or match["after"] or b"s").lower()
        spans["step_time"] = Span(*match.span("value"), milli=unit == b"ms")
        return None if value is None else value / 1000.0 if unit == b"ms" else value
    match = None
    if b"s/it" in text or b"/step" in text:
        match = numbers()["seconds_per_step"].search(text)
        if match:
            spans["step_time"] = Span(*match.span("value"))
            return number_of(match["value"])
    if b"step" in lower and (match := numbers()["timed_step"].search(text)) is not None:
        spans["step_time"] = Span(*match.span("value"), milli=match["milli"] is not None)
        value = number_of(match["value"])
        return value / 1000.0 if value is not None and match["milli"] else value
    if any(word in lower for word in (b"sec: ", b"time", b"seconds: ", b" ms |", b" sec)")):
        match = numbers()["seconds"].search(text)
    if match is None:
        return None
    group = "value" if match["value"] else "mid" if match["mid"] else "end"
    milli = group == "mid" or match["ms"] is not None
    spans["step_time"] = Span(*match.span(group), milli=milli)
    value = number_of(match[group])
    return None if value is None else value / 1000.0 if milli else value


def _first(
    pattern: re.Pattern[bytes], text: bytes, name: str, spans: dict[str, Span]
) -> float | None:
    match = pattern.search(text)
    if match is None:
        return None
    spans[name] = Span(*match.span(1))
    return number_of(match[1])


def number_of(raw: bytes) -> float | None:
    """Return a number as it is written, also one that is none, or None."""
    if b"," in raw:
        raw = _without_commas(raw)
    try:
        return float(raw)
    except ValueError:
        return None


def _without_commas(raw: bytes) -> bytes:
    """Return a number without the commas between its thousands, or with a point for that of its decimals."""
    whole, _, last = raw.rstrip(b",").rpartition(b",")
    parts_thousands = len(last) == 3 and not whole.lstrip(b"+-").startswith(b"0")
    if not whole or b"." in last or b"," in whole or parts_thousands:
        return raw.replace(b",", b"")
    return whole + b"." + last
