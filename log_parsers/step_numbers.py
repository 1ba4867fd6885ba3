"""The numbers of a step line, found field by field or where those of a line like it stood."""

from __future__ import annotations

import re

from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.held_out import counts_held_out, hints_at_held_out, measures_held_out
from rerail.log_parsers.step_layouts import Span

NUMBER = rb"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+)"
VALUE = rb"(?:" + NUMBER + rb"|[-+]?(?:nan|inf)(?:inity)?)"
_LOSS_VALUE = rb"(?:\s*\([^)]{1,12}\))?['\"]?\s*(?:[:= ]|is )\s*['\"]?\(?(" + VALUE + rb")"
_LOSS = lazy(
    rb"(?:lm[ _]loss|reduced_train_loss|train[_/]loss(?:_step)?|total[_ ]loss|loss[_ ]train|"
    rb"(?<![\w/-])[Ll]oss(?:_?avg)?|(?<=, )ce)" + _LOSS_VALUE,
    re.IGNORECASE,
)
# NeMo reduces it over all ranks; the bar's own `loss` beside it is a mean of one rank, nan where the rank has none.
_REDUCED_LOSS = lazy(rb"reduced_train_loss" + _LOSS_VALUE)
# Where no loss of the whole is printed, the first that is printed stands for it.
# Losses of a part or of held-out data go their own ways: they do not.
_SOME_LOSS = lazy(
    rb"(?<!pg_)(?<!vf_)(?<!kl_)(?<!aux_)(?<!val_)(?<!eval_)(?<!test_)(?<!policy_)(?<!value_)(?<!entropy_)"
    rb"(?<!balancing_)(?<!critic/)loss(?:_?avg)?" + _LOSS_VALUE,
    re.IGNORECASE,
)
_TIME = lazy(
    rb"(?:elapsed time per iteration|iteration_time|train_step_timing|step[_ ]time|"
    rb"iter(?:ation)?[ _]time|time[ _]per[ _](?:step|iteration)|timing_s/step|batch[_ ]time|avg_batch_cost|Batch \(t\))"
    rb"['\"]?\s*(?:in |\()?(?P<unit>ms|s)?\)?\s*[:=]?\s*(?P<value>"
    + NUMBER
    + rb")\s*(?P<after>ms|s)?",
    re.IGNORECASE,
)
_SEC_STEP = lazy(rb"(?P<value>[\d.]+) ?(?:sec/step|s/step|s/it\b)")
# "step 1.021s": how long it took, and not which one.
_TIMED_STEP = lazy(rb"(?<![\w-])[Ss]tep[ :=]{1,16}(?P<value>\d{1,6}\.\d{1,6}) ?(?P<milli>m)?s\b")
_SEC_FIELD = lazy(
    rb"(?:\(sec: |, time = |(?<![\w(-])(?<!apsed )(?<!all )(?<!otal )(?<!ining )"
    rb"[Tt]ime(?::| ) *|\bseconds: )(?P<value>\d[\d.]*\d) ?(?P<ms>ms)?"
    rb"|[|(] ?(?P<mid>\d[\d.]*\d) ms \||\((?P<end>\d[\d.]*\d) sec\)"
)
_DATA = lazy(
    rb"(?<![\w-])[Dd]ata(?:[_ ]?(?:[Ll]oad(?:ing|er)?|[Ww]ait(?:ing)?|[Ff]etch(?:ing)?)"
    rb"(?:[_ ][Tt]ime|(?=[:= ]{1,3}\d+\.\d+ ?s(?:ec)?\b(?! \()))|[_ ][Tt]ime)?(?: \(t\))?['\"]?"
    rb"(?:[:=]|[ \t])[ \t]*(?P<value>\d+\.\d+)"
    rb"(?!\d|[ \t]?(?:[KMGTkmgt]i?[Bb]|m(?:illi)?s(?:ec(?:ond)?s?)?|us|%|util|[a-z]{2,9}/s(?:ec)?)\b)"
)
_GRAD = lazy(
    rb"(?:grad(?:ient)?[ _]norm|gnorm|\| norm)['\"]?\s*[:= ]\s*['\"]?(" + VALUE + rb")",
    re.IGNORECASE,
)
_LR = lazy(
    rb"(?<![\w.])(?:learning[ _-]rate|lr(?:_0|-0)?)['\"]?\s*[:= ]\s*['\"\[(]*("
    + NUMBER
    + rb")(?![\w/:])",
    re.IGNORECASE,
)
_SCALE = lazy(rb"loss[ _]scale['\"]?\s*[:= ]\s*(" + NUMBER + rb")", re.IGNORECASE)
_TPS = lazy(
    rb"(?:\btps|\bwps|\bips|\btgs(?: \(tokens/gpu/second\))?|(?:tokens|samples)_per_sec(?:ond)?(?:_per_gpu)?|"
    rb"tokens/s(?:ec)?|(?<=\t)speed(?=: [\d.]+ samples/s)|samples/s(?:ec(?:ond)?)?|imgs/s|train_speed\(iter/s\)|"
    rb"throughput(?: per GPU \(TFLOP/s/GPU\))?)['\"]?\s*[:= ]\s*(" + NUMBER + rb")",
    re.IGNORECASE,
)
_SAMPLES_KEY = lazy(rb'"(?:step_num|samples_count|iteration|step|iter)": ?')
_SAMPLES = lazy(_SAMPLES_KEY.pattern + rb"(\d+)(?:\.0+)?(?![\d.])")
# Where a form begins with another number than the step, which stands somewhere behind it; ms-swift
# prints the Trainer's line with the step beside the last one.
STEP_BEHIND = {
    "mllog": _SAMPLES,
    "mllog_rate": _SAMPLES,
    "hf": lazy(rb"'global_step/max_steps': '(\d+)/"),
    "fairseq": lazy(rb"\bnum_updates=(\d+)"),
}
_EPOCH = lazy(rb"(?:'epoch': |epoch[ :=\[]{1,16})([\d.]+)", re.IGNORECASE)
# What a launcher puts in front of the rank that a process tells of itself numbers it on its own node or in a part.
_RANK = lazy(
    rb"^\s*(?:(?:(?:\d{1,6}: ?|\[[a-z]+ ?\d+\]:?|\[\d+,\d+\]<\w+>:?) ?){1,3}(?=\[rank ?\d))?"
    rb"(?:\[(?:rank|default) ?(\d+)\]|(\d+): |\[\d+,(\d+)\]<)",
    re.IGNORECASE,
)


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
    label = _RANK.match(text)
    if label is None:
        return None, None
    group = label.lastindex or 1  # one of the forms matched
    return int(label[group]), Span(*label.span(group))


_RATES = (b"tps", b"s/s", b"throughput", b"wps", b"ips", b"tgs", b"s_per_sec", b"speed(")

# Sentences of one length make a batch here, so that healthy times differ threefold from line to line.
_UNTIMED = frozenset({"gnmt"})


def has_layout(form: str, text: bytes, spans: dict[str, Span]) -> bool:
    """Tell whether lines that differ from this one in numbers alone have theirs where it has its own."""
    if STEP_BEHIND.get(form) is not _SAMPLES:
        return True
    # Which of several keys tells the step depends on the digits behind them.
    key, step = _SAMPLES_KEY.search(text), spans.get("step")
    return key is None if step is None else key is not None and key.end() == step.start


def read_row(
    line: int, form: str, match: re.Match[bytes], text: bytes, start: int
) -> tuple[StepRow, dict[str, Span]]:
    """Read one step line, and say at which bytes of `text` each of its numbers stands."""
    row = StepRow(line, form)
    spans: dict[str, Span] = {}
    groups = match.groupdict()
    if groups.get("step"):
        row.step = int(groups["step"].replace(b",", b""))
        spans["step"] = Span(match.start("step") - start, match.end("step") - start)
    # Searches that ignore case read every byte; one word that they need is found much sooner.
    lower = text.lower()
    maybe_held_out = hints_at_held_out(lower)
    if maybe_held_out and counts_held_out(text[: match.start() - start]):
        return StepRow(line, "evaluation", row.step), {}
    if b"reduced_train_loss" in text:
        row.loss = _first(_REDUCED_LOSS, text, "loss", spans)
    elif groups.get("loss") is not None:
        row.loss = _float(groups["loss"])
        spans["loss"] = Span(match.start("loss") - start, match.end("loss") - start)
    elif b"loss" in lower or b", ce" in lower:
        row.loss = _loss(text, spans) if not maybe_held_out else _loss_of_training(row, text, spans)
    _other_values(row, text, lower, spans)
    row.data_time = _data_time(text, lower, spans)
    timed = form not in _UNTIMED
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
            if name == "rank" or form not in STEP_BEHIND:
                setattr(row, name, int(raw.replace(b",", b"")))
            continue
        value = _float(raw)
        setattr(row, name, value / 1000.0 if span.milli and value is not None else value)
    _read_beside(row, form, match.groupdict(), text)
    return row


def _read_beside(
    row: StepRow, form: str, groups: dict[str, bytes | None], text: bytes
) -> Span | None:
    """Read what stands in the place of other numbers, and return where such a step stands."""
    if groups.get("tps") is not None:
        row.throughput = _float(groups["tps"] or b"")
    behind = STEP_BEHIND[form].search(text) if form in STEP_BEHIND else None
    if behind is None:
        return None
    row.step = int(behind[1])
    return Span(*behind.span(1))


def _other_values(row: StepRow, text: bytes, lower: bytes, spans: dict[str, Span]) -> None:
    if b"norm" in lower:
        row.grad_norm = _first(_GRAD, text, "grad_norm", spans)
    if b"scale" in lower:
        row.loss_scale = _first(_SCALE, text, "loss_scale", spans)
    if any(word in lower for word in _RATES):
        row.throughput = _first(_TPS, text, "throughput", spans)
    if b"epoch" in lower:
        row.epoch = _first(_EPOCH, text, "epoch", spans)
    if b"lr" in lower or b"learning" in lower:
        row.learning_rate = _first(_LR, text, "learning_rate", spans)


def _loss(text: bytes, spans: dict[str, Span]) -> float | None:
    found = _first(_LOSS, text, "loss", spans)
    return _first(_SOME_LOSS, text, "loss", spans) if found is None else found


def _loss_of_training(row: StepRow, text: bytes, spans: dict[str, Span]) -> float | None:
    """Return the first loss that is not one of held-out data; a line of none but such is one of an evaluation."""
    seen = False
    for pattern in (_LOSS, _SOME_LOSS):
        for match in pattern.finditer(text):
            if not measures_held_out(text[: match.start(1)]):
                spans["loss"] = Span(*match.span(1))
                return _float(match[1])
            seen = True
    row.form = "evaluation" if seen else row.form
    return None


def _data_time(text: bytes, lower: bytes, spans: dict[str, Span]) -> float | None:
    match = _DATA.search(text) if b"data" in lower else None
    if match is None:
        return None
    spans["data_time"] = Span(*match.span("value"))
    return _float(match["value"])


def _step_time(
    form: str,
    groups: dict[str, bytes | None],
    text: bytes,
    lower: bytes,
    spans: dict[str, Span],
) -> float | None:
    if form == "tqdm":
        rate = _float(groups["rate"] or b"0")
        if not rate:
            return None
        return rate if groups["unit"] == b"s/it" else 1.0 / rate
    match = _TIME.search(text) if any(word in lower for word in (b"tim", b"(t)", b"cost")) else None
    if match:
        value = _float(match["value"])
        unit = (match["unit"] or match["after"] or b"s").lower()
        spans["step_time"] = Span(*match.span("value"), milli=unit == b"ms")
        return None if value is None else value / 1000.0 if unit == b"ms" else value
    match = None
    if b"s/it" in text or b"/step" in text:
        match = _SEC_STEP.search(text)
        if match:
            spans["step_time"] = Span(*match.span("value"))
            return _float(match["value"])
    if b"step" in lower and (match := _TIMED_STEP.search(text)) is not None:
        spans["step_time"] = Span(*match.span("value"), milli=match["milli"] is not None)
        value = _float(match["value"])
        return value / 1000.0 if value is not None and match["milli"] else value
    if any(word in lower for word in (b"sec: ", b"time", b"seconds: ", b" ms |", b" sec)")):
        match = _SEC_FIELD.search(text)
    if match is None:
        return None
    group = "value" if match["value"] else "mid" if match["mid"] else "end"
    milli = group == "mid" or match["ms"] is not None
    spans["step_time"] = Span(*match.span(group), milli=milli)
    value = _float(match[group])
    return None if value is None else value / 1000.0 if milli else value


def _first(
    pattern: re.Pattern[bytes], text: bytes, name: str, spans: dict[str, Span]
) -> float | None:
    match = pattern.search(text)
    if match is None:
        return None
    spans[name] = Span(*match.span(1))
    return _float(match[1])


def _float(raw: bytes) -> float | None:
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
